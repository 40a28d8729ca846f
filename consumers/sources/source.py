"""What the SDK asks of a source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from consumers.delivery import Delivery

Take = Callable[[Sequence[Delivery]], None]


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

    async def run(self, take: Take) -> None:
        """Hand over deliveries until cancelled, as many as flow control allows; survives outages by itself.

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
