"""A topic with one subscription, and what has arrived there: nobody is believed who says that it has published."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from google.api_core.exceptions import NotFound
from google.pubsub_v1.types import PublishRequest, PubsubMessage, Subscription
from google.pubsub_v1.types import Topic as PubSubTopic

from benchmarks.contest import Contestant, start
from relay.brokers.pubsub_client import PubSubAddress

_SECONDS = 60.0
# An envelope is so much larger than the data in it, at most.
_ENVELOPE_BYTES = 200


@dataclass(frozen=True)
class Arrived:
    """What the reader of a subscription has had."""

    messages: int
    events: int  # with an identity of their own
    incomplete: int  # without all of the attributes
    smallest: int  # in bytes of the body
    largest: int

    def faults(self, data_bytes: int) -> str:
        """What is wrong with messages whose data have so many bytes, in words."""
        found = []
        if self.events != self.messages:
            found.append(f"{self.messages} messages were of {self.events} events")
        if self.incomplete:
            found.append(f"{self.incomplete} messages lacked attributes")
        if self.messages and not data_bytes <= self.smallest <= self.largest <= data_bytes + _ENVELOPE_BYTES:
            found.append(f"bodies had {self.smallest} to {self.largest} bytes, with {data_bytes} of data")
        return ", ".join(found)


@dataclass
class Topic:
    """One that is read from its beginning on by a process of its own."""

    name: str
    _address: PubSubAddress
    _reader: Contestant
    _number: int = 0
    _arrived: list[Arrived] = field(default_factory=list)

    def taken(self) -> int:
        """How many messages the emulator has taken since it was asked last, of all topics together: it numbers them."""
        before, self._number = self._number, asyncio.run(_number(self._address, _beside(self.name)))
        return self._number - before - 1  # the message that asks is one of them

    def arrived(self, messages: int = 0, seconds: float = 0.0) -> Arrived:
        """What was read, when it is so many messages or the time is over; from the first answer on it reads no more."""
        if not self._arrived:
            self._reader.say(json.dumps({"messages": messages, "seconds": seconds}))
            self._arrived.append(Arrived(**self._reader.answer()))
        return self._arrived[0]


@contextmanager
def topic(address: PubSubAddress, environment: Mapping[str, str], name: str) -> Iterator[Topic]:
    """Make one for the length of the block. Raises ContestError where its reader did not read to the end."""
    asyncio.run(_create(address, name))
    reader = start([sys.executable, "-m", "benchmarks.reader", name], environment)
    try:
        reader.go()
        read = Topic(name, address, reader)
        yield read
        read.arrived()
    finally:
        reader.end()
        asyncio.run(_delete(address, name))


def _beside(name: str) -> str:
    """The topic of the messages that are counted by: nobody reads them."""
    return f"{name}-count"


async def _number(address: PubSubAddress, name: str) -> int:
    request = PublishRequest(topic=address.topic(name), messages=[PubsubMessage(data=b"counted by")])
    async with address.publisher() as publisher:
        answered = await publisher.publish(request, timeout=_SECONDS)
    return int(answered.message_ids[0])


async def _create(address: PubSubAddress, name: str) -> None:
    async with address.publisher() as publisher, address.subscriber() as subscriber:
        for each in (name, _beside(name)):
            await publisher.create_topic(PubSubTopic(name=address.topic(each)), timeout=_SECONDS)
        subscription = Subscription(
            name=address.subscription(name), topic=address.topic(name), enable_message_ordering=True
        )
        await subscriber.create_subscription(subscription, timeout=_SECONDS)


async def _delete(address: PubSubAddress, name: str) -> None:
    async with address.publisher() as publisher, address.subscriber() as subscriber:
        with suppress(NotFound):  # gone already, and its reader tells of it
            await subscriber.delete_subscription(subscription=address.subscription(name), timeout=_SECONDS)
        for each in (name, _beside(name)):
            await publisher.delete_topic(topic=address.topic(each), timeout=_SECONDS)
