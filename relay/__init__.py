"""The outbox: emit an event with the change that it announces; the relay carries it on."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relay.errors import AutocommitError, EmitError, InvalidEventError, RelayError
from relay.lazy import names_of

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
    from relay.event import Actor, Event
    from relay.registry import Registry, Rule
else:
    # Whoever consumes needs no psycopg, and finds perhaps no libpq for it; pytest loads a plugin from here in every
    # project that has the distribution installed.
    __getattr__ = names_of(
        __name__,
        {
            "Actor": "relay.event",
            "Emitted": "relay.emit",
            "Event": "relay.event",
            "Registry": "relay.registry",
            "Rule": "relay.registry",
            "emit": "relay.emit",
            "emit_async": "relay.emit",
        },
    )


class _Package(ModuleType):
    """`relay.emit` is the function, also where the module of that name is imported first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "emit" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
