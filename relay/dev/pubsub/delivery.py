"""A message on its way to one subscription, and the consumer that holds it meanwhile."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lanes import Lane


@dataclass(slots=True, eq=False)
class Consumer:
    """Whoever holds deliveries: a stream or one pull, with as much as it agreed to hold."""

    max_messages: int = sys.maxsize
    max_bytes: int = sys.maxsize
    messages: int = 0
    bytes: int = 0

    def has_room(self) -> bool:
        """Whether one more message may be delivered; the last one may exceed the bytes."""
        return self.messages < self.max_messages and self.bytes < self.max_bytes


@dataclass(slots=True, eq=False)
class Delivery:
    """A message on its way to one subscription's consumers, until it is acknowledged."""

    message: bytes  # the serialised PubsubMessage, shared by all subscriptions
    lane: "Lane"
    attempt: int = 0
    ack_id: str = ""
    consumer: Consumer | None = None  # who holds it, None while it waits

    def hand_to(self, consumer: Consumer) -> None:
        """Count the delivery as one that the consumer holds."""
        self.attempt += 1
        self.consumer = consumer
        consumer.messages += 1
        consumer.bytes += len(self.message)

    def take_back(self) -> None:
        """Stop counting the delivery as one that its consumer holds."""
        if self.consumer is not None:
            self.consumer.messages -= 1
            self.consumer.bytes -= len(self.message)
            self.consumer = None
