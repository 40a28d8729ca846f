"""What the publisher asks of a broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.envelope import Message


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much the broker takes in one request."""

    messages: int
    size_bytes: int


class Broker(Protocol):
    """Takes messages, and answers for them with ids of its own."""

    limits: RequestLimits

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Hand over one request, all of it or nothing, and return the broker's ids in order.

        Never retries by itself and never takes longer than `seconds`. Raises BrokerError.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...
