"""For the tests of a service that emits: what it emitted, what the relay makes of it, and a broker in memory."""

from typing import TYPE_CHECKING, Any

from relay.extras import installed_by
from relay.lazy import names_of

__all__ = [
    "EmittedEvent",
    "MemoryBroker",
    "Outbox",
    "Relayed",
    "RelayedMessage",
    "Servers",
    "State",
    "fresh_database",
    "migrated_template",
]

if TYPE_CHECKING:
    from relay.testing.broker import MemoryBroker, RelayedMessage
    from relay.testing.databases import fresh_database, migrated_template
    from relay.testing.emitted import EmittedEvent, State
    from relay.testing.one_pass import Relayed
    from relay.testing.outbox import Outbox
    from relay.testing.servers import Servers
else:
    _found = names_of(
        __name__,
        {
            "EmittedEvent": "relay.testing.emitted",
            "MemoryBroker": "relay.testing.broker",
            "Outbox": "relay.testing.outbox",
            "Relayed": "relay.testing.one_pass",
            "RelayedMessage": "relay.testing.broker",
            "Servers": "relay.testing.servers",
            "State": "relay.testing.emitted",
            "fresh_database": "relay.testing.databases",
            "migrated_template": "relay.testing.databases",
        },
    )

    def __getattr__(name: str) -> Any:
        try:
            return _found(name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            raise ModuleNotFoundError(
                f"relay.testing.{name} needs the package {package!r}; run: {installed_by('dev')}", name=error.name
            ) from error
