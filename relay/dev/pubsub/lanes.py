"""Lanes: deliveries that queue in an order of their own.

A subscription without ordering has one lane. One with ordering has another for every key that is
in use: there, a failed delivery is repeated together with all later ones of its key that are held
by a consumer, in order, and only the consumer that holds some may draw more.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from relay.dev.pubsub.delivery import Consumer, Delivery


class Lane(Protocol):
    """What a subscription asks of its lanes."""

    queued: bool  # whether the subscription will visit the lane; the subscription's own note

    def add(self, messages: Sequence[bytes]) -> None:
        """Queue new messages behind the others."""

    def ready(self, now: float) -> bool:
        """Whether a delivery could be drawn, by some consumer."""

    def draw(self, consumer: Consumer, now: float) -> Delivery | None:
        """Take the next delivery that this consumer may have."""

    def forget(self, delivery: Delivery) -> None:
        """Drop a drawn delivery that was acknowledged."""

    def is_next(self, delivery: Delivery) -> bool:
        """Whether no earlier delivery must be settled before this drawn one."""

    def withdraw(self, delivery: Delivery) -> Sequence[Delivery]:
        """Name the failed delivery, and then the drawn ones that must be repeated with it, in order."""

    def put_back(self, deliveries: Sequence[Delivery], due: float) -> None:
        """Queue withdrawn deliveries, not to be drawn before `due`."""

    def empty(self) -> bool:
        """Whether nothing waits and nothing is drawn, so that the lane may be dropped."""


@dataclass(slots=True, eq=False)
class Unordered:
    """Messages without a key: every one for itself, new and repeated ones taking turns."""

    queued: bool = False
    _waiting: deque[bytes] = field(default_factory=deque)
    _resting: list[tuple[float, int, Delivery]] = field(default_factory=list)
    _repeat_next: bool = True
    _ticket: "count[int]" = field(default_factory=count)

    def add(self, messages: Sequence[bytes]) -> None:
        """Queue new messages behind the others."""
        self._waiting.extend(messages)

    def ready(self, now: float) -> bool:
        """Whether something waits, or has rested for long enough."""
        return bool(self._waiting) or bool(self._resting and self._resting[0][0] <= now)

    def draw(self, consumer: Consumer, now: float) -> Delivery | None:  # noqa: ARG002 - anyone may
        """Take one that has rested for long enough and one that waits, in turn."""
        if self._resting and self._resting[0][0] <= now:
            self._repeat_next = not self._repeat_next
            if not (self._repeat_next and self._waiting):
                return heappop(self._resting)[2]
        return Delivery(self._waiting.popleft(), self) if self._waiting else None

    def forget(self, delivery: Delivery) -> None:
        """Do nothing: a drawn delivery leaves no trace here."""

    def is_next(self, delivery: Delivery) -> bool:  # noqa: ARG002 - each for itself
        """Always."""
        return True

    def withdraw(self, delivery: Delivery) -> Sequence[Delivery]:
        """Name the failed delivery alone."""
        return (delivery,)

    def put_back(self, deliveries: Sequence[Delivery], due: float) -> None:
        """Let the deliveries rest until they are due."""
        for delivery in deliveries:
            heappush(self._resting, (due, next(self._ticket), delivery))

    def empty(self) -> bool:
        """Never: a subscription keeps its unordered lane."""
        return False


@dataclass(slots=True, eq=False)
class Ordered:
    """The messages of one ordering key."""

    key: str
    queued: bool = False
    _waiting: deque[bytes] = field(default_factory=deque)
    _repeated: deque[Delivery] = field(default_factory=deque)  # all older than what waits
    _drawn: dict[Delivery, None] = field(default_factory=dict)  # in order; a set would lose it
    _owner: Consumer | None = None
    _due: float = 0.0

    def add(self, messages: Sequence[bytes]) -> None:
        """Queue new messages behind the others."""
        self._waiting.extend(messages)

    def ready(self, now: float) -> bool:
        """Whether something waits and the key does not rest after a failure."""
        return bool(self._repeated or self._waiting) and self._due <= now

    def draw(self, consumer: Consumer, now: float) -> Delivery | None:
        """Take the key's next delivery, unless another consumer holds earlier ones."""
        if not self.ready(now) or (self._drawn and self._owner is not consumer):
            return None
        self._owner = consumer
        repeated = self._repeated
        delivery = repeated.popleft() if repeated else Delivery(self._waiting.popleft(), self)
        self._drawn[delivery] = None
        return delivery

    def forget(self, delivery: Delivery) -> None:
        """Drop the delivery; with the last one drawn, the key is anyone's again."""
        self._drawn.pop(delivery, None)

    def is_next(self, delivery: Delivery) -> bool:
        """Whether the delivery is the earliest one drawn."""
        return next(iter(self._drawn), None) is delivery

    def withdraw(self, delivery: Delivery) -> Sequence[Delivery]:
        """Name the failed delivery and every later one of the key that was drawn."""
        drawn = list(self._drawn)
        later = drawn[drawn.index(delivery) :]
        for each in later:
            del self._drawn[each]
        return later

    def put_back(self, deliveries: Sequence[Delivery], due: float) -> None:
        """Queue the deliveries in front; the whole key rests until the latest due time."""
        self._repeated.extendleft(reversed(deliveries))
        self._due = max(self._due, due)

    def empty(self) -> bool:
        """Whether nothing of this key is left."""
        return not (self._waiting or self._repeated or self._drawn)
