"""Streaming: what a Pub/Sub service sends over a StreamingPull, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from google.cloud.pubsub_v1 import SubscriberClient
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1 import types

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PATIENCE = 10.0


async def test_a_stream_delivers_and_settles(service: Service) -> None:
    """A stream brings messages as they are published; what it acknowledges stays away."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    for data in ("a", "b"):
        await service.publish(topic, data)
        received = await stream.next()
        assert received.message.data == data.encode()
        await stream.send(ack_ids=[received.ack_id])
    await service.publish(topic, "c")
    assert (await stream.next()).message.data == b"c"
    stream.call.cancel()


async def test_a_stream_gives_messages_back(service: Service) -> None:
    """A deadline of 0 on the stream brings a message again, under another ack id."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    first = await stream.next()
    await stream.send(modify_deadline_ack_ids=[first.ack_id], modify_deadline_seconds=[0])
    second = await stream.next()
    assert second.message == first.message
    assert second.ack_id != first.ack_id
    stream.call.cancel()


async def test_a_stream_brings_what_expired_elsewhere(service: Service) -> None:
    """A message whose deadline passes is streamed again without anyone asking."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    first = await stream.next()
    await stream.send(modify_deadline_ack_ids=[first.ack_id], modify_deadline_seconds=[1])
    assert (await stream.next()).message == first.message
    stream.call.cancel()


async def test_a_stream_holds_no_more_messages_than_it_agreed_to(service: Service) -> None:
    """A stream never holds more than its maximum of messages, and gets all in the end."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, *[str(number) for number in range(10)])
    stream = await service.stream(name, max_outstanding_messages=3)
    arrived: list[bytes] = []
    held: list[str] = []
    while len(arrived) < 10:
        for received in await stream.next_response():
            arrived.append(received.message.data)
            held.append(received.ack_id)
        assert len(held) <= 3
        if len(held) == 3:
            await stream.send(ack_ids=held)
            held = []
    assert sorted(arrived) == [str(number).encode() for number in range(10)]
    stream.call.cancel()


async def test_a_stream_holds_no_more_bytes_than_it_agreed_to(service: Service) -> None:
    """A stream never holds a second message beyond its bytes, and gets all in the end."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, *["x" * 1_000 for _ in range(6)])
    stream = await service.stream(name, max_outstanding_bytes=1_500)
    for arrived in range(0, 6, 2):
        held = [await stream.next(), await stream.next()]
        assert not stream._buffer, f"{arrived} settled, more than two held"
        await stream.send(ack_ids=[each.ack_id for each in held])
    stream.call.cancel()


async def test_a_nack_on_a_stream_repeats_the_key_in_order(service: Service) -> None:
    """A nacked message of a key is streamed again, and after it every later one that was held."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    stream = await service.stream(name)
    await service.publish(topic, *[{"data": b"%d" % number, "ordering_key": "k"} for number in range(4)])
    held = [await stream.next() for _ in range(4)]
    await stream.send(
        ack_ids=[held[0].ack_id],
        modify_deadline_ack_ids=[held[1].ack_id],
        modify_deadline_seconds=[0],
    )
    again = [await stream.next() for _ in range(3)]
    assert [each.message.data for each in again] == [b"1", b"2", b"3"]
    assert not {each.ack_id for each in again} & {each.ack_id for each in held}
    stream.call.cancel()


async def test_two_streams_share_the_messages(service: Service) -> None:
    """Each message goes to one of a subscription's streams."""
    topic = await service.topic()
    name = await service.subscription(topic)
    streams = [await service.stream(name, max_outstanding_messages=5) for _ in range(2)]
    await service.publish(topic, *[str(number) for number in range(10)])
    arrived = [await stream.next() for stream in streams for _ in range(5)]
    assert sorted(int(each.message.data) for each in arrived) == list(range(10))
    for stream in streams:
        stream.call.cancel()


BAD_STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "missing subscription": (
        {"subscription": "projects/contract/subscriptions/missing"},
        "NOT_FOUND",
    ),
    "no subscription": ({"subscription": ""}, "INVALID_ARGUMENT"),
    "deadline of 9 s": ({"stream_ack_deadline_seconds": 9}, "INVALID_ARGUMENT"),
    "deadline of 601 s": ({"stream_ack_deadline_seconds": 601}, "INVALID_ARGUMENT"),
    "deadline without ack id": ({"modify_deadline_seconds": [10]}, "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("case", BAD_STREAMS)
async def test_a_bad_first_request_ends_the_stream(service: Service, case: str) -> None:
    """A stream that begins against the rules ends with the reason."""
    request, code = BAD_STREAMS[case]
    name = await service.subscription(await service.topic())
    stream = await service.stream(name, **request)
    assert await stream.refusal() == code


async def test_a_stream_names_its_subscription_once(service: Service) -> None:
    """A later request that names a subscription ends the stream."""
    name = await service.subscription(await service.topic())
    stream = await service.stream(name)
    await stream.send(subscription=name)
    assert await stream.refusal() == "INVALID_ARGUMENT"


async def test_a_stream_ends_with_its_subscription(service: Service) -> None:
    """Deleting the subscription ends its streams with NOT_FOUND."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    await stream.next()
    request = types.DeleteSubscriptionRequest(subscription=name)
    await service.call("Subscriber/DeleteSubscription", request)
    assert await stream.refusal() == "NOT_FOUND"


async def test_the_stock_subscribe_settles(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Google's own `subscribe` nacks comes again; what it acknowledges stays away."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with subscribed(service, name, monkeypatch, nack_once=b"1") as arrived:
        await service.publish(topic, "0", "1", "2")
        data = [await arrived.get() for _ in range(4)]
    assert sorted(data) == [b"0", b"1", b"1", b"2"]
    assert not await service.pull_now(name)


async def test_the_stock_subscribe_keeps_a_key_in_order(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's own `subscribe` handles the messages of a key in order."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    expected = [b"%d" % number for number in range(20)]
    async with subscribed(service, name, monkeypatch) as arrived:
        for each in expected:
            await service.publish(topic, {"data": each, "ordering_key": "k"})
        assert [await arrived.get() for _ in expected] == expected


@asynccontextmanager
async def subscribed(
    service: Service, name: str, monkeypatch: pytest.MonkeyPatch, nack_once: bytes = b""
) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Run the stock streaming pull; show the data of what it was handed."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.address)
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    to_nack = {nack_once}

    def handle(message: Message) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, message.data)
        if message.data in to_nack:
            to_nack.clear()
            message.nack()
        else:
            message.ack()

    client = SubscriberClient()
    pulling = client.subscribe(name, handle)

    def end() -> None:
        pulling.cancel()
        pulling.result(timeout=PATIENCE)
        client.close()

    try:
        async with asyncio.timeout(PATIENCE):
            yield arrived
    finally:
        await asyncio.to_thread(end)
