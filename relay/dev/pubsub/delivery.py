"""A message on its way to one subscription, and the consumer that holds it meanwhile."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.dev.pubsub.lanes import Lane


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
    attempt: int = 1  # of the delivery that is to come, or is held: one more than have failed
    ack_id: str = ""
    consumer: Consumer | None = None  # who holds it, None while it waits

    def take_back(self) -> None:
        """Stop counting the delivery as one that its consumer holds."""
        if self.consumer is not None:
            self.consumer.messages -= 1
            self.consumer.bytes -= len(self.message)
            self.consumer = None


@dataclass(slots=True, eq=False)
class Batch:
    """Deliveries that go to a consumer together."""

    consumer: Consumer
    messages: int  # how many more may be added
    bytes: int  # the last one may exceed them
    deliveries: list[Delivery] = field(default_factory=list)

    def full(self) -> bool:
        """Whether no more may be added, for the batch's sake or the consumer's."""
        return self.messages <= 0 or self.bytes <= 0 or not self.consumer.has_room()

    def add(self, delivery: Delivery) -> None:
        """Hand a delivery to the consumer."""
        size = len(delivery.message)
        self.messages -= 1
        self.bytes -= size
        self.consumer.messages += 1
        self.consumer.bytes += size
        delivery.consumer = self.consumer
        self.deliveries.append(delivery)
