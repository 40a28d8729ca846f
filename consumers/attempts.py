"""Attempts counted in this process, for consumers whose store counts none."""

from collections import OrderedDict
from uuid import UUID

_MOST = 100_000


class Attempts:
    """How often each event was begun here; the events that were begun longest ago are forgotten first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._counts: OrderedDict[UUID, int] = OrderedDict()

    def begin(self, event: UUID, delivery_attempt: int) -> int:
        """Which attempt this one is: by our count, or by the broker's where it has seen more."""
        if not self._counts and delivery_attempt <= 1:
            return 1
        counted = self._counts.get(event, 0) + 1
        return max(counted, delivery_attempt)

    def failed(self, event: UUID, attempt: int) -> None:
        """The attempt was in vain."""
        self._counts[event] = attempt
        self._counts.move_to_end(event)
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def forget(self, event: UUID) -> None:
        """It is over."""
        self._counts.pop(event, None)
