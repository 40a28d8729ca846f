"""Exactly-once delivery: which ack ids are good, and how a consumer learns that one was not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import types
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

if TYPE_CHECKING:
    from tests.contract.conftest import Service, Stream

PATIENCE = 10.0
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
METHODS = ["Acknowledge", "ModifyAckDeadline"]


async def subscription(service: Service, **settings: Any) -> tuple[str, str]:
    """A topic and an exactly-once subscription to it."""
    topic = await service.topic()
    return topic, await service.subscription(topic, enable_exactly_once_delivery=True, **settings)


def request(method: str, name: str, *received: Any) -> Any:
    """Settle deliveries, or give them a new deadline."""
    ack_ids = [each.ack_id for each in received]
    if method == "Acknowledge":
        return types.AcknowledgeRequest(subscription=name, ack_ids=ack_ids)
    return types.ModifyAckDeadlineRequest(subscription=name, ack_ids=ack_ids, ack_deadline_seconds=20)


async def failures(service: Service, method: str, name: str, *received: Any) -> dict[str, str]:
    """What a request about ack ids is answered for those that failed, as client libraries read it."""
    try:
        await service.call(f"Subscriber/{method}", request(method, name, *received))
    except grpc.aio.AioRpcError as error:
        refused = error
    else:
        return {}
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = Status.FromString(dict(refused.trailing_metadata())["grpc-status-details-bin"])
    assert (status.code, status.message) == (refused.code().value[0], refused.details())
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    return dict(info.metadata)


async def test_the_ack_id_of_a_delivery_that_is_held_is_good(service: Service) -> None:
    """For a longer deadline and for the acknowledgement."""
    topic, name = await subscription(service)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    assert await failures(service, "ModifyAckDeadline", name, received) == {}
    assert await failures(service, "Acknowledge", name, received) == {}
    assert not await service.pull_now(name)


@pytest.mark.parametrize("method", METHODS)
async def test_an_ack_id_that_was_used_is_no_longer_good(service: Service, method: str) -> None:
    """Once acknowledged, there is nothing left to settle."""
    topic, name = await subscription(service)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    await service.acknowledge(name, received)
    assert await failures(service, method, name, received) == {received.ack_id: INVALID}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0, 1])
async def test_only_the_latest_delivery_has_a_good_ack_id(service: Service, method: str, seconds: int) -> None:
    """After a nack as after a deadline, the older one is refused, beside a newer one that is taken."""
    topic, name = await subscription(service)
    await service.publish(topic, "x")
    (old,) = await service.pull(name, 1)
    await service.modify(name, seconds, old)
    (new,) = await service.pull(name, 1)
    assert await failures(service, method, name, old, new) == {old.ack_id: INVALID}
    settled = {new.ack_id: INVALID} if method == "Acknowledge" else {}
    assert await failures(service, "Acknowledge", name, new) == settled


async def test_an_ack_id_that_ended_is_refused_before_the_next_delivery(service: Service) -> None:
    """Whoever comes late is told so, also while nobody else has the message."""
    topic, name = await subscription(service)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    await service.modify(name, 0, received)
    assert await failures(service, "Acknowledge", name, received) == {received.ack_id: INVALID}
    assert [each.message.data for each in await service.pull(name, 1)] == [b"x"]


async def test_a_late_ack_id_of_an_ordinary_subscription_is_no_error(service: Service) -> None:
    """Without exactly-once delivery nobody is told."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    await service.modify(name, 0, received)
    for method in METHODS:
        assert await failures(service, method, name, received) == {}


async def test_a_key_is_acknowledged_in_its_order(service: Service) -> None:
    """An acknowledgement out of turn fails for now, and is taken in its turn."""
    topic, name = await subscription(service, enable_message_ordering=True)
    await service.publish(topic, *[{"data": each, "ordering_key": "k"} for each in (b"0", b"1", b"2")])
    first, second, third = await service.pull(name, 3)
    assert await failures(service, "Acknowledge", name, second) == {second.ack_id: UNORDERED}
    assert await failures(service, "Acknowledge", name, first, third, second) == {third.ack_id: UNORDERED}
    assert await failures(service, "Acknowledge", name, third) == {}


@pytest.mark.parametrize("settings", [{}, {"exactly_once"}, {"ordering"}, {"exactly_once", "ordering"}])
async def test_a_stream_tells_what_its_subscription_is(service: Service, settings: set[str]) -> None:
    """In each of its responses."""
    topic = await service.topic()
    name = await service.subscription(
        topic,
        enable_exactly_once_delivery="exactly_once" in settings,
        enable_message_ordering="ordering" in settings,
    )
    stream = await service.stream(name)
    for data in ("a", "b"):
        await service.publish(topic, data)
        told = (await with_messages(stream)).subscription_properties
        assert told.exactly_once_delivery_enabled is ("exactly_once" in settings)
        assert told.message_ordering_enabled is ("ordering" in settings)
    stream.call.cancel()


async def with_messages(stream: Stream) -> Any:
    """The next response that brings some."""
    async with asyncio.timeout(PATIENCE):
        while not (response := await stream.call.read()).received_messages:
            pass
    return response


async def test_a_stream_confirms_acknowledgements(service: Service) -> None:
    """Those that were good and those that were not, each in its place."""
    topic, name = await subscription(service, enable_message_ordering=True)
    stream = await service.stream(name)
    await service.publish(topic, *[{"data": each, "ordering_key": "k"} for each in (b"0", b"1", b"2")])
    first, second, third = [await stream.next() for _ in range(3)]
    await stream.send(ack_ids=[first.ack_id, third.ack_id, "made up"])
    await stream.send(ack_ids=[first.ack_id, second.ack_id])
    good: list[str] = []
    bad: list[str] = []
    early: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while len(good) + len(bad) + len(early) < 5:
            confirmation = (await stream.call.read()).acknowledge_confirmation
            good += confirmation.ack_ids
            bad += confirmation.invalid_ack_ids
            early += confirmation.unordered_ack_ids
    assert good == [first.ack_id, second.ack_id]
    assert bad == ["made up", first.ack_id]
    assert early == [third.ack_id]
    stream.call.cancel()


async def test_a_stream_confirms_deadlines(service: Service) -> None:
    """A message that was given back comes again; its old ack id is refused on every road."""
    topic, name = await subscription(service)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    old = await stream.next()
    await stream.send(modify_deadline_ack_ids=[old.ack_id], modify_deadline_seconds=[0])
    response = await with_messages(stream)
    (new,) = response.received_messages
    assert list(response.modify_ack_deadline_confirmation.ack_ids) == [old.ack_id]
    await stream.send(modify_deadline_ack_ids=[old.ack_id, new.ack_id], modify_deadline_seconds=[20, 20])
    async with asyncio.timeout(PATIENCE):
        confirmation = (await stream.call.read()).modify_ack_deadline_confirmation
    assert list(confirmation.ack_ids) == [new.ack_id]
    assert list(confirmation.invalid_ack_ids) == [old.ack_id]
    assert await failures(service, "Acknowledge", name, old) == {old.ack_id: INVALID}
    stream.call.cancel()
