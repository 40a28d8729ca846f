"""The outbox: emit an event with the change that it announces; the relay carries it on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from relay.emit import Emitted, emit, emit_async
else:
    try:
        from relay.emit import Emitted, emit, emit_async
    except ImportError:
        # psycopg is not there, or finds no libpq. Whoever consumes needs neither; whoever emits is told.
        def __getattr__(name: str) -> Any:
            if name not in {"Emitted", "emit", "emit_async"}:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            return getattr(import_module("relay.emit"), name)
