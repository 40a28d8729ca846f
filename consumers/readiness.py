"""Whether the consumers of a service receive: what its readiness probe answers by.

readiness = Readiness()
async with billing.running(observe=readiness): ...
readiness.receiving     False before they have begun, while what they need is away, and when they have ended
readiness.away()        what each does without: connections, too, while handlers wait for one in vain
"""

from consumers.events import (
    ConnectionsFree,
    ConnectionsSpent,
    ConsumerStarted,
    ConsumerStopped,
    InboxAway,
    InboxBack,
    StoreAway,
    StoreBack,
)
from relay.kernel.observe import LoopDied

__all__ = ["Readiness"]

_STORE = "store"
_CONNECTIONS = "connections"


class Readiness:
    """Listens to what happens to any number of consumers."""

    def __init__(self) -> None:
        # Of each that has begun, what it does without at the moment.
        self._missing: dict[str, set[str]] = {}
        self._ended: set[str] = set()

    @property
    def receiving(self) -> bool:
        """Whether each that has begun receives and begins what comes, has connections for it, and there is one."""
        return bool(self._missing) and not self._ended and not any(self._missing.values())

    def away(self) -> dict[str, list[str]]:
        """By consumer, what keeps it from working: store; receive, move or claim (the inbox); connections; its end."""
        missing = {name: sorted(parts) for name, parts in self._missing.items() if parts}
        return missing | {name: ["ended"] for name in sorted(self._ended)}

    def __call__(self, event: object) -> None:
        """Note what the event says of it."""
        match event:
            case ConsumerStarted(consumer):
                self._missing[consumer] = set()
                self._ended.discard(consumer)
            case ConsumerStopped(consumer) | LoopDied(consumer):
                self._ended.add(consumer)
            case StoreAway(consumer):
                self._of(consumer).add(_STORE)
            case StoreBack(consumer):
                self._of(consumer).discard(_STORE)
            case InboxAway(consumer, operation):
                self._of(consumer).add(operation)
            case InboxBack(consumer, operation):
                self._of(consumer).discard(operation)
            case ConnectionsSpent(consumer):
                self._of(consumer).add(_CONNECTIONS)
            case ConnectionsFree(consumer):
                self._of(consumer).discard(_CONNECTIONS)

    def _of(self, consumer: str) -> set[str]:
        return self._missing.setdefault(consumer, set())
