"""What the consumers' source makes of a Pub/Sub service, ours and Google's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from google.pubsub_v1 import types

from consumers.delivery import Delivery
from consumers.events import SourceAway
from consumers.sources.pubsub import PubSubSource
from consumers.sources.source import Facts
from relay.brokers.pubsub_client import PubSubAddress
from relay.errors import ConfigurationError
from relay.kernel.backoff import Delay
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PROJECT = "contract"
SECONDS = 20.0


class Reading:
    """A source at work on a service."""

    def __init__(self, source: PubSubSource, facts: Facts, told: list[object]) -> None:
        self.source = source
        self.facts = facts
        self.told = told
        self.got: list[Delivery] = []
        self.running = asyncio.ensure_future(source.run(self._take))

    async def deliveries(self, count: int) -> list[Delivery]:
        """Wait until so many were handed over in all."""
        await self.until(lambda: len(self.got) >= count, f"{count} deliveries")
        return self.got

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; the source must go on meanwhile."""

        async def holds() -> bool:
            if self.running.done():
                self.running.result()
            return condition()

        await until_async(holds, f"{what}; got {len(self.got)}, told {self.told}", SECONDS)

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self.got += deliveries


def source_of(service: Service, name: str, told: list[object], **settings: Any) -> PubSubSource:
    """A source, not opened."""
    given: dict[str, Any] = {"consumer": "billing", "max_messages": 1_000, "max_bytes": 64 << 20}
    return PubSubSource(
        PubSubAddress(PROJECT, emulator=service.address), name, observe=told.append, **(given | settings)
    )


@asynccontextmanager
async def reading(service: Service, name: str, **settings: Any) -> AsyncIterator[Reading]:
    """Read a subscription."""
    told: list[object] = []
    source = source_of(service, name, told, **settings)
    facts = await source.open()
    at_work = Reading(source, facts, told)
    try:
        yield at_work
    finally:
        at_work.running.cancel()
        await asyncio.wait([at_work.running])
        await source.close(SECONDS)


async def test_what_is_acknowledged_stays_away(service: Service) -> None:
    """Thousands of messages, each once, with all that was published of it."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with reading(service, name) as at_work:
        for first in range(0, 3_000, 1_000):
            await service.publish(
                topic, *[{"data": b"%d" % number, "attributes": {"n": "1"}} for number in range(first, first + 1_000)]
            )
        seen = 0
        while seen < 3_000:
            await at_work.deliveries(seen + 1)
            for each in at_work.got[seen:]:
                assert await at_work.source.acknowledge(each)
                seen += 1
        assert sorted(int(each.body) for each in at_work.got) == list(range(3_000))
        assert at_work.got[0].attributes == {"n": "1"}
        assert at_work.got[0].published_at > 0
        assert (at_work.source.held_messages, at_work.source.held_bytes) == (0, 0)
        assert not at_work.told
    assert not await service.pull_now(name)


async def test_what_is_given_back_comes_again(service: Service) -> None:
    """As the same message, at once or after its rest."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with reading(service, name) as at_work:
        await service.publish(topic, "a")
        for delay in (0.0, 0.5):
            delivery = (await at_work.deliveries(len(at_work.got) or 1))[-1]
            at_work.source.give_back(delivery, delay)
            await at_work.deliveries(len(at_work.got) + 1)
        assert {each.message_id for each in at_work.got} == {at_work.got[0].message_id}
        assert len({each.handle.ack_id for each in at_work.got}) == 3
        assert await at_work.source.acknowledge(at_work.got[-1])
    assert not await service.pull_now(name)


async def test_what_is_held_is_extended(service: Service) -> None:
    """Nobody else gets what is worked on for longer than its deadline, here a second that we did not ask for."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with reading(service, name, extend_every=0.2) as at_work:
        await service.publish(topic, "a")
        (delivery,) = await at_work.deliveries(1)
        loop = asyncio.get_running_loop()
        ends = loop.time() + 1.5
        request = types.ModifyAckDeadlineRequest(
            subscription=name, ack_ids=[delivery.handle.ack_id], ack_deadline_seconds=1
        )
        await service.call("Subscriber/ModifyAckDeadline", request)
        await at_work.until(lambda: loop.time() > ends, "the deadline has passed")
        assert not await service.pull_now(name)
        assert len(at_work.got) == 1
        assert await at_work.source.acknowledge(delivery)
        assert not at_work.told
    assert not await service.pull_now(name)


async def test_a_key_comes_in_its_order(service: Service) -> None:
    """Message by message, as they were published."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    async with reading(service, name) as at_work:
        assert at_work.facts.ordered
        for number in range(20):
            await service.publish(topic, {"data": b"%d" % number, "ordering_key": "k"})
        for number in range(20):
            delivery = (await at_work.deliveries(number + 1))[number]
            assert (delivery.body, delivery.ordering_key) == (b"%d" % number, "k")
            assert await at_work.source.acknowledge(delivery)


async def test_what_is_read_stays_within_its_bounds(service: Service) -> None:
    """Also where the service does not keep to them; and all comes in the end."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with reading(service, name, max_messages=10) as at_work:
        for number in range(40):
            await service.publish(topic, str(number))
        for number in range(40):
            delivery = (await at_work.deliveries(number + 1))[number]
            # What is read last may exceed them.
            assert at_work.source.held_messages < 10 + 40
            assert await at_work.source.acknowledge(delivery)


async def test_a_subscription_tells_about_itself(service: Service) -> None:
    """What a consumer has to know of it at the start."""
    topic = await service.topic()
    name = await service.subscription(topic, message_retention_duration=timedelta(days=2))
    async with reading(service, name) as at_work:
        assert at_work.facts.topic == topic
        assert at_work.facts.retention == timedelta(days=2)
        assert at_work.facts.ordered is False
        assert at_work.facts.counts_attempts is False


async def test_a_subscription_that_is_not_there_is_named(service: Service) -> None:
    """With what to do."""
    source = source_of(service, "missing-altogether", [])
    with pytest.raises(ConfigurationError, match="subscriptions/missing-altogether"):
        await source.open()


async def test_a_subscription_that_is_deleted_is_told_of_once(service: Service) -> None:
    """However often it is looked for."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with reading(service, name, reconnect=Delay(first=0.01, most=0.02, jitter=0.0)) as at_work:
        await service.publish(topic, "a")
        (delivery,) = await at_work.deliveries(1)
        assert await at_work.source.acknowledge(delivery)
        await at_work.until(lambda: not at_work.source._settling.unsaid, "it is acknowledged")
        await service.call("Subscriber/DeleteSubscription", types.DeleteSubscriptionRequest(subscription=name))
        await at_work.until(lambda: bool(at_work.told), "it is told of")
        (away,) = at_work.told
        assert isinstance(away, SourceAway)
        assert "NOT_FOUND" in str(away.error)
