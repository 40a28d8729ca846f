"""The outbox: emit an event with the change that it announces; the relay carries it on."""

from relay.emit import Emitted, emit, emit_async
from relay.errors import AutocommitError, EmitError, InvalidEventError, RelayError
from relay.event import Actor, Event
from relay.registry import Registry, Rule

__all__ = [
    "Actor",
    "AutocommitError",
    "EmitError",
    "Emitted",
    "Event",
    "InvalidEventError",
    "Registry",
    "RelayError",
    "Rule",
    "emit",
    "emit_async",
]
