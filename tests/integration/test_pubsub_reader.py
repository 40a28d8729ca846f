"""A subscription's end is a silence that the service itself stands for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.pubsub_v1.types import PubsubMessage, PullResponse, Subscription

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_reader import PubSubReader
from relay.dev.stack import PROJECT_ID
from relay.errors import BrokerError, ConfigurationError
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until_async

MESSAGE = PubsubMessage(data=b"body", attributes={"event_id": "e"})


@pytest.fixture
async def reader(pubsub: PubSubSide, channel: Channel) -> AsyncIterator[PubSubReader]:
    """A reader of the channel's subscription."""
    async with PubSubReader(PubSubAddress(PROJECT_ID, pubsub.address), channel.subscription) as opened:
        yield opened


async def test_a_message_is_read_as_it_was_published(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader
) -> None:
    """Body, attributes and ordering key are the publisher's, the id is the broker's."""
    await pubsub.publish(channel, [PubsubMessage(MESSAGE, ordering_key="k")])

    (received,) = await reader.next(5.0)

    assert (received.body, received.attributes, received.ordering_key) == (b"body", {"event_id": "e"}, "k")
    assert received.message_id
    await reader.acknowledge([received])
    assert await pubsub.drain(channel) == []


async def test_a_message_of_the_largest_size_is_read(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader
) -> None:
    """Nothing that the broker takes is too large to be read."""
    await pubsub.publish(channel, [PubsubMessage(data=b"x" * 9_500_000)])
    (received,) = await reader.next(5.0)
    assert len(received.body) == 9_500_000


async def test_what_comes_between_two_questions_is_not_lost(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader
) -> None:
    """A question that found silence stays open, and its answer belongs to the next one who asks."""
    assert await reader.next(0.1) == ()
    await pubsub.publish(channel, [MESSAGE])
    assert len(await reader.next(5.0)) == 1


async def test_an_empty_answer_is_not_a_silence(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service may answer with nothing although messages remain."""
    await pubsub.publish(channel, [MESSAGE])
    ask = PubSubReader._ask

    async def nothing_at_first(_: PubSubReader) -> PullResponse:
        monkeypatch.setattr(PubSubReader, "_ask", ask)
        return PullResponse()

    monkeypatch.setattr(PubSubReader, "_ask", nothing_at_first)
    assert len(await reader.next(5.0)) == 1


async def test_a_slow_service_is_not_an_empty_one(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silence counts only once the service has answered a question that was asked later."""
    await pubsub.publish(channel, [MESSAGE])
    ask, describe, described = PubSubReader._ask, PubSubReader._describe, asyncio.Event()

    async def ask_late(self: PubSubReader) -> PullResponse:
        await described.wait()
        return await ask(self)

    async def describe_first(self: PubSubReader) -> Any:
        try:
            return await describe(self)
        finally:
            described.set()

    monkeypatch.setattr(PubSubReader, "_ask", ask_late)
    monkeypatch.setattr(PubSubReader, "_describe", describe_first)
    assert len(await reader.next(0.5)) == 1


async def test_a_source_names_itself_in_full(pubsub: PubSubSide) -> None:
    """Subscription and topic are told with their project, and whether a key keeps its order."""
    channel = await pubsub.open(ordered=True)
    name = f"projects/{PROJECT_ID}/subscriptions/{channel.subscription}"
    for given in (name, channel.subscription):
        async with PubSubReader(PubSubAddress(PROJECT_ID, pubsub.address), given) as reader:
            source = await reader.source()
        assert source.subscription == name
        assert source.topic == f"projects/{PROJECT_ID}/topics/{channel.topic}"
        assert source.ordered


@pytest.mark.parametrize("name", ["nobody-made-this", "no name at all"])
async def test_what_cannot_be_read_is_refused_by_its_name(pubsub: PubSubSide, name: str) -> None:
    """A name that is unknown or impossible is a wrong call, and is repeated."""
    async with PubSubReader(PubSubAddress(PROJECT_ID, pubsub.address), name) as reader:
        with pytest.raises(ConfigurationError, match=f"projects/{PROJECT_ID}/subscriptions/{name} cannot be read"):
            await reader.source()


async def test_a_filtered_subscription_is_refused(reader: PubSubReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a filter hides would count as lost."""

    async def filtered(_: PubSubReader) -> Subscription:
        return Subscription(name="s", topic="t", filter='attributes.event_type = "order.placed"')

    monkeypatch.setattr(PubSubReader, "_describe", filtered)
    with pytest.raises(ConfigurationError, match=r"filters with 'attributes\.event_type = .*it never shows the rest"):
        await reader.source()


@pytest.mark.parametrize("code", ["ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN"])
async def test_an_outage_is_waited_out(pubsub: PubSubSide, channel: Channel, reader: PubSubReader, code: str) -> None:
    """A service that fails is neither empty nor given up at once."""
    await pubsub.publish(channel, [MESSAGE])
    await pubsub.fail(code, "Pull")
    reading = asyncio.create_task(reader.next(5.0))
    await until_async(pubsub.has_failed, "the reader meets the fault")
    await pubsub.heal()
    assert len(await reading) == 1


async def test_an_outage_without_end_is_not_waited_out(pubsub: PubSubSide, channel: Channel) -> None:
    """After its limit the failure is told, under the service's own name."""
    await pubsub.fail("UNAVAILABLE", "Pull")
    address = PubSubAddress(PROJECT_ID, pubsub.address)
    async with PubSubReader(address, channel.subscription, outage_seconds=0.0) as reader:
        with pytest.raises(BrokerError, match="UNAVAILABLE: a fault that was asked for"):
            await reader.next(5.0)


@pytest.mark.parametrize("method", ["Pull", "Acknowledge"])
async def test_a_refusal_is_told_at_once(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader, method: str
) -> None:
    """Nobody waits for a permission."""
    await pubsub.publish(channel, [MESSAGE])
    await pubsub.fail("PERMISSION_DENIED", method)
    with pytest.raises(BrokerError, match="PERMISSION_DENIED"):
        await reader.acknowledge(await reader.next(5.0))


async def test_what_is_held_is_nobodys_until_it_is_given_back(
    pubsub: PubSubSide, channel: Channel, reader: PubSubReader
) -> None:
    """And then it is another reader's, not the answer to a question that this one left open."""
    for _ in range(2):
        await pubsub.publish(channel, [MESSAGE] * 750)
    held = [*await reader.next(5.0), *await reader.next(5.0)]
    assert len(held) == 1_500

    await reader.hold(held, 600)
    assert await reader.next(0.1) == ()
    assert await pubsub.drain(channel) == []
    await reader.stop()
    await reader.hold(held, 0)

    assert len(await pubsub.drain(channel)) == 1_500


async def test_what_cannot_be_held_is_told(pubsub: PubSubSide, channel: Channel, reader: PubSubReader) -> None:
    """Under the service's own name, at once."""
    await pubsub.publish(channel, [MESSAGE])
    held = await reader.next(5.0)
    await pubsub.fail("UNAVAILABLE", "ModifyAckDeadline")
    with pytest.raises(BrokerError, match="UNAVAILABLE"):
        await reader.hold(held, 60)
