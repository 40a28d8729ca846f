"""A subscription and a dead-letter topic in memory, which outlive the process that reads them."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

from consumers.clock import Clock
from consumers.dead_letters import PREFIX, original_attributes
from consumers.delivery import Delivery
from consumers.sources.source import Demand, Facts, Take
from relay.errors import BrokerError


class Fuse:
    """Blown when its process is killed: whatever the process does from then on reaches nobody."""

    def __init__(self) -> None:
        self.blown = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter topic."""

    body: bytes
    attributes: Mapping[str, str]

    @property
    def event_id(self) -> str:
        """As the message's attributes have it."""
        return self.attributes.get("event_id", "")

    @property
    def code(self) -> str:
        """The short name of the reason."""
        return self.attributes.get(f"{PREFIX}code", "")

    @property
    def reason(self) -> str:
        """Why it is there."""
        return self.attributes.get(f"{PREFIX}reason", "")

    @property
    def attempts(self) -> int:
        """After how many."""
        return int(self.attributes.get(f"{PREFIX}attempts", "0"))

    @property
    def original_attributes(self) -> dict[str, str]:
        """What the message had before."""
        return original_attributes(self.attributes)

    @property
    def envelope(self) -> Any:
        """What JSON makes of the body."""
        return json.loads(self.body)


@dataclass(slots=True, eq=False)
class _Message:
    body: bytes
    attributes: dict[str, str]
    message_id: str
    ordering_key: str
    published_at: float
    place: int
    attempt: int
    handed_over: int = 0


class Subscription:
    """Keeps messages until they are acknowledged, and hands them over in the order in which they were published."""

    def __init__(self, clock: Clock, name: str, retention: timedelta, most: int, *, counts_attempts: bool) -> None:
        self.clock = clock
        self.facts = Facts(name, retention=retention, counts_attempts=counts_attempts)
        self.most = most
        self.waiting: list[_Message] = []
        self.unacknowledged: set[_Message] = set()
        self.later: set[_Message] = set()
        self.came = asyncio.Event()
        self._places = count(1)

    def publish(
        self, body: bytes, attributes: Mapping[str, str], *, ordering_key: str, published_at: float, attempt: int
    ) -> str:
        """Keep a message, and answer with its id."""
        place = next(self._places)
        message = _Message(body, dict(attributes), f"m-{place}", ordering_key, published_at, place, attempt)
        self.unacknowledged.add(message)
        self.come(message)
        return message.message_id

    def come_later(self, message: _Message, seconds: float) -> None:
        """Hand it over again after a while; what is behind it in its key waits for it."""
        self.later.add(message)
        self.clock.call_later(seconds, self.come, message)

    def next(self, room: int) -> list[_Message]:
        """So many messages at most, which are not waiting any more then."""
        batch: list[_Message] = []
        held_up: dict[str, int] = {}
        for message in sorted(self.later, key=lambda each: -each.place):
            if message.ordering_key:
                held_up[message.ordering_key] = message.place
        for message in self.waiting:
            if len(batch) < room and message.place < held_up.get(message.ordering_key, message.place + 1):
                batch.append(message)
        self.waiting = [message for message in self.waiting if message not in batch]
        return batch

    def come(self, message: _Message) -> None:
        """Hand it over, or over again."""
        self.later.discard(message)
        if message in self.unacknowledged:
            self.waiting.append(message)
            self.waiting.sort(key=lambda each: each.place)
            self.came.set()

    def delivered(self, message: _Message) -> Delivery:
        """As one process gets it."""
        message.handed_over += 1
        counted = message.attempt + message.handed_over - 1 if message.attempt else 0
        return Delivery(
            body=message.body,
            attributes=dict(message.attributes),
            message_id=message.message_id,
            ordering_key=message.ordering_key,
            published_at=message.published_at,
            attempt=max(counted, message.handed_over if self.facts.counts_attempts else 0),
            handle=message,
        )


class MemorySource:
    """One process's reading of a subscription."""

    def __init__(self, subscription: Subscription, fuse: Fuse) -> None:
        self.name = subscription.facts.name
        self._subscription = subscription
        self._fuse = fuse
        self._held: dict[Delivery, _Message] = {}

    @property
    def held_messages(self) -> int:
        """Deliveries that are held."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """And what they take."""
        return sum(len(delivery.body) for delivery in self._held)

    async def open(self) -> Facts:
        """What is known of the subscription."""
        return self._subscription.facts

    async def run(self, take: Take, demand: Demand | None = None) -> None:  # noqa: ARG002 -- it holds what waits
        """Hand over what is there, and what comes, up to as many at once as the subscription says."""
        subscription = self._subscription
        while True:
            batch = subscription.next(subscription.most - len(self._held))
            deliveries = {subscription.delivered(message): message for message in batch}
            self._held.update(deliveries)
            if deliveries:
                take(list(deliveries))
            subscription.came.clear()
            await subscription.came.wait()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Have the message forgotten."""
        if self._fuse.blown:
            return False
        self._subscription.unacknowledged.discard(self._let_go(delivery))
        return True

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Have the message come again, after the delay."""
        if not self._fuse.blown:
            self._subscription.come_later(self._let_go(delivery), delay)

    async def close(self, seconds: float) -> None:  # noqa: ARG002 -- nothing here takes time
        """Let go of all."""
        if not self._fuse.blown:
            self.drop()

    def drop(self) -> None:
        """The broker has noticed that this process is gone: what it held comes again."""
        held, self._held = list(self._held.values()), {}
        for message in held:
            self._subscription.come(message)

    def _let_go(self, delivery: Delivery) -> _Message:
        self._subscription.came.set()  # there is room
        if delivery not in self._held:
            raise AssertionError(f"delivery {delivery.message_id} was acknowledged or given back before")
        return self._held.pop(delivery)


class MemoryDeadLetters:
    """One process's writing to a dead-letter topic; `kept` is the topic."""

    def __init__(self, topic: str, kept: list[DeadLetter], fuse: Fuse) -> None:
        self.topic = topic
        self._kept = kept
        self._fuse = fuse

    async def open(self) -> None:
        """It is there."""

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Keep the message."""
        if self._fuse.blown:
            raise BrokerError("UNAVAILABLE", "this process was killed")
        self._kept.append(DeadLetter(delivery.body, dict(attributes)))

    async def close(self) -> None:
        """Nothing is open."""
