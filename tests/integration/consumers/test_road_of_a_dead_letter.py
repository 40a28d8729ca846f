"""From a handler that fails to one that does not: consumers at work on both sides of a replay."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from google.pubsub_v1.types import PubsubMessage
from redis.asyncio import Redis

from consumers import Consumer, FatalError
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.protocol import Dedup
from consumers.events import DeliverySettled
from consumers.outside import Outside
from consumers.runtime import Runtime
from consumers.sources.pubsub import PubSubSource
from consumers.sources.pubsub_dead_letters import PubSubDeadLetters
from idempotency import Manager, Store
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.stack import PROJECT_ID, Stack
from tests.support.dead_letters import DeadLetterDesk, envelope
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until_async

MODES: dict[str, Callable[[Store, str], Dedup]] = {"claim": ClaimDedup, "mark": MarkDedup}


@dataclass
class Shop:
    """Two consumers of one topic. Billing can be broken; shipping never is."""

    address: PubSubAddress
    store: Store
    events: Channel
    shipping_events: Channel
    letters: Channel
    mode: str
    billing: str = field(default_factory=lambda: f"billing-{uuid4().hex}")
    shipping: str = field(default_factory=lambda: f"shipping-{uuid4().hex}")
    broken: bool = True
    booked: list[UUID] = field(default_factory=list)
    fates: list[tuple[str, str]] = field(default_factory=list)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Both."""
        stopping = asyncio.Event()
        billing, shipping = Consumer(self.billing), Consumer(self.shipping)

        @billing.fallback
        async def book(event: Any) -> None:
            if self.broken:
                raise FatalError("no such account", "NO_ACCOUNT")
            self.booked.append(event.event_id)

        @shipping.fallback
        async def ship(_: Any) -> None:
            pass

        tasks = [
            asyncio.create_task(self._runtime(consumer, channel).run(stopping, 5.0))
            for consumer, channel in ((billing, self.events), (shipping, self.shipping_events))
        ]
        try:
            yield
        finally:
            stopping.set()
            await asyncio.gather(*tasks)

    def _runtime(self, consumer: Consumer, channel: Channel) -> Runtime:
        def observe(event: object) -> None:
            if isinstance(event, DeliverySettled):
                self.fates.append((event.consumer.partition("-")[0], event.fate.value))

        source = PubSubSource(
            self.address,
            channel.subscription,
            consumer=consumer.name,
            max_messages=100,
            max_bytes=10_000_000,
            observe=observe,
        )
        dedup = MODES[self.mode](self.store, consumer.name)
        letters = PubSubDeadLetters(self.address, self.letters.topic)
        return Runtime(consumer, Outside(source=source, dedup=dedup, dead_letters=letters, observe=observe))

    async def until(self, *fates: tuple[str, str]) -> None:
        """Until these have happened; then forget them."""

        async def happened() -> bool:
            return sorted(self.fates) == sorted(fates)

        await until_async(happened, f"{fates}")
        self.fates.clear()


@pytest.fixture(params=MODES)
async def shop(request: pytest.FixtureRequest, stack: Stack, pubsub: PubSubSide) -> AsyncIterator[Shop]:
    """On subscriptions of its own to one topic."""
    events = await pubsub.open()
    shipping = Channel(events.topic, f"s-{uuid4().hex}")
    address = PubSubAddress(PROJECT_ID, pubsub.address)
    subscriber = address.subscriber()
    await subscriber.create_subscription(
        request={"name": address.subscription(shipping.subscription), "topic": address.topic(events.topic)}
    )
    await subscriber.transport.close()  # type: ignore[no-untyped-call]
    redis = Redis.from_url(stack.redis_url)
    yield Shop(address, Manager(redis), events, shipping, await pubsub.open(ack_deadline=10), request.param)
    await redis.aclose()


async def test_what_failed_is_acted_on_after_a_replay_by_the_one_that_failed(
    shop: Shop, pubsub: PubSubSide, desk: DeadLetterDesk
) -> None:
    """Once, however often it is replayed; and every other consumer leaves it alone."""
    event = uuid4()
    replay = ("replay", "--from", shop.letters.subscription, "--quiet", "400ms")
    async with shop.at_work():
        await pubsub.publish(shop.events, [PubsubMessage(data=envelope(event))])
        await shop.until(("billing", "dead"), ("shipping", "done"))

        still_broken = await asyncio.to_thread(lambda: desk(*replay))
        assert still_broken.returncode == 0, still_broken.stderr
        await shop.until(("billing", "dead"), ("shipping", "not_meant"))

        shop.broken = False
        assert (await asyncio.to_thread(lambda: desk(*replay))).returncode == 0
        await shop.until(("billing", "done"), ("shipping", "not_meant"))

    assert shop.booked == [event]
    assert await pubsub.drain(shop.letters) == []


async def test_what_is_no_event_stays_the_dead_letter_of_the_one_that_asked(
    shop: Shop, pubsub: PubSubSide, desk: DeadLetterDesk
) -> None:
    """Replayed for one, it is not buried by the others again."""
    async with shop.at_work():
        await pubsub.publish(shop.events, [PubsubMessage(data=b"{")])
        await shop.until(("billing", "undecodable"), ("shipping", "undecodable"))

        mine = ("--consumer", shop.billing, "--code", "UNDECODABLE", "--quiet", "400ms")
        done = await asyncio.to_thread(lambda: desk("replay", "--from", shop.letters.subscription, *mine))
        assert done.returncode == 0, done.stderr
        await shop.until(("billing", "undecodable"), ("shipping", "not_meant"))

    letters = await pubsub.drain(shop.letters)
    assert sorted(letter.attributes["dead_letter_consumer"] for letter in letters) == [shop.billing, shop.shipping]
