"""What the SDK asks of a source."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Protocol

from consumers.delivery import Delivery

Take = Callable[[Sequence[Delivery]], None]


class Origin(Enum):
    """Where a consumer's events come from: its author's choice."""

    PUBSUB = "pubsub"
    """A subscription of Google Pub/Sub."""
    OUTBOX = "outbox"
    """The outbox of the database that has the inbox."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source says about itself at the start; None where it cannot be known."""

    name: str
    topic: str | None = None
    retention: timedelta | None = None
    """How long a message that nobody acknowledges is kept."""
    ordered: bool | None = None
    exactly_once: bool | None = None
    counts_attempts: bool | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """Permits that some types have together."""

    most: int
    """In all."""
    rooms: Mapping[str, int]
    """Of each type."""


class Demand(Protocol):
    """What the process can take now. None of it is taken by asking: whoever hands over a delivery fills a permit."""

    @property
    def freed(self) -> asyncio.Event:
        """Set when a permit may have become free; whoever waits for it clears it."""
        ...

    @property
    def room(self) -> int:
        """Permits that are free in all."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing is handled, and nothing waits to be."""
        ...

    def handled(self, event_type: str) -> bool:
        """Whether a handler is for events of this type, in any version."""
        ...

    def paused(self, event_type: str) -> bool:
        """Whether nothing of this type is to begin for now, whatever room there is."""
        ...

    def shares(self, event_types: Iterable[str]) -> "Sequence[Share]":
        """How many of each of these types may begin now; those of which none may are left out.

        What batches take is apart from what all other handlers share. Which types are served first is for the caller,
        by their order.
        """
        ...


class Source(Protocol):
    """Hands over deliveries, holds them as long as they are worked on, and takes them back."""

    name: str
    """The subscription, as a person would write it."""

    @property
    def held_messages(self) -> int:
        """Deliveries that are held."""
        ...

    @property
    def held_bytes(self) -> int:
        """And what they take."""
        ...

    async def open(self) -> Facts:
        """Look at what will be read. Raises ConfigurationError where it cannot be, BrokerError where it is away."""
        ...

    async def run(self, take: Take, demand: Demand) -> None:
        """Hand over deliveries until cancelled, as many as flow control allows; survives outages by itself.

        A source that keeps deliveries elsewhere hands over no more than `demand` says; others hold what waits.
        Each delivery is held (its lease extended) until it is acknowledged or given back, also after this has ended.
        """
        ...

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Have the delivery forgotten. False where the source knows that it will come again all the same.

        Answers at once where the source does not confirm.
        """
        ...

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Hold it no longer: it comes again, here or elsewhere, after some `delay` seconds or sooner."""
        ...

    async def close(self, seconds: float) -> None:
        """Send what is still to be said, in this time, and let go of all."""
        ...
