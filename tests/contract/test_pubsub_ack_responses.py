"""Acknowledgements that are answered, as Google's own `subscribe` sees them, and those that are told to fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from google.cloud.pubsub_v1 import SubscriberClient
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1 import types
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from relay.dev.pubsub import Fault, PubSubEmulator

if TYPE_CHECKING:
    from tests.contract.conftest import Connect, Service

PATIENCE = 20.0
UNAVAILABLE = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"


class Clock:
    """The system's, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    """Of the emulator."""
    return Clock()


@pytest.fixture
async def emulator(clock: Clock) -> AsyncIterator[PubSubEmulator]:
    """One of its own for each test."""
    async with PubSubEmulator(clock=clock) as emulator:
        yield emulator


@pytest.fixture
async def service(emulator: PubSubEmulator, connect: Connect) -> AsyncIterator[Service]:
    """The emulator, connected."""
    async with connect("ours", emulator.address) as service:
        yield service


@pytest.fixture
async def names(service: Service) -> tuple[str, str]:
    """A topic and an exactly-once subscription."""
    topic = await service.topic()
    return topic, await service.subscription(topic, enable_exactly_once_delivery=True)


@pytest.fixture
async def arrived(
    emulator: PubSubEmulator, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Queue[Message]]:
    """What Google's own `subscribe` hands out."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.address)
    messages: asyncio.Queue[Message] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    client = SubscriberClient()
    pulling = client.subscribe(names[1], lambda message: loop.call_soon_threadsafe(messages.put_nowait, message))

    def end() -> None:
        pulling.cancel()
        pulling.result(timeout=PATIENCE)
        client.close()

    async with asyncio.timeout(PATIENCE):
        yield messages
    await asyncio.to_thread(end)


async def answer(settle: Callable[[], Any]) -> AcknowledgeStatus:
    """Settle a message, and wait for what the service has to say."""
    try:
        status: AcknowledgeStatus = await asyncio.to_thread(settle().result, PATIENCE)
    except AcknowledgeError as error:
        status = error.error_code
    return status


async def test_an_acknowledgement_in_time_succeeds(
    service: Service, names: tuple[str, str], arrived: asyncio.Queue[Message]
) -> None:
    """And is the last that is heard of the message."""
    topic, name = names
    await service.publish(topic, "x")
    message = await arrived.get()
    assert await answer(message.ack_with_response) is AcknowledgeStatus.SUCCESS
    assert not await service.pull_now(name)


async def test_an_acknowledgement_after_the_deadline_fails(
    emulator: PubSubEmulator, service: Service, names: tuple[str, str], arrived: asyncio.Queue[Message], clock: Clock
) -> None:
    """The consumer learns that somebody else has the message, who can acknowledge it."""
    await service.publish(names[0], "x")
    late = await arrived.get()
    clock.ahead += 601
    emulator.wake()
    again = await arrived.get()
    assert again.message_id == late.message_id
    assert await answer(late.ack_with_response) is AcknowledgeStatus.INVALID_ACK_ID
    assert await answer(late.nack_with_response) is AcknowledgeStatus.INVALID_ACK_ID
    assert await answer(again.ack_with_response) is AcknowledgeStatus.SUCCESS


async def test_a_transient_failure_is_tried_again(
    emulator: PubSubEmulator, service: Service, names: tuple[str, str], arrived: asyncio.Queue[Message]
) -> None:
    """By the client library, until it succeeds."""
    await service.publish(names[0], "x")
    message = await arrived.get()
    emulator.faults.set(Fault("INVALID_ARGUMENT", method="Acknowledge", ack_failure=UNAVAILABLE, times=1))
    assert await answer(message.ack_with_response) is AcknowledgeStatus.SUCCESS
    assert emulator.faults.answered == 1


async def test_a_permanent_failure_that_is_asked_for_is_told(
    emulator: PubSubEmulator, service: Service, names: tuple[str, str], arrived: asyncio.Queue[Message]
) -> None:
    """Once, and nobody tries again."""
    await service.publish(names[0], "x")
    message = await arrived.get()
    emulator.faults.set(Fault("INVALID_ARGUMENT", method="Acknowledge", ack_failure="PERMANENT_FAILURE_OTHER"))
    assert await answer(message.ack_with_response) is AcknowledgeStatus.OTHER
    assert emulator.faults.answered == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_failure_that_is_asked_for_names_every_ack_id(
    emulator: PubSubEmulator, service: Service, names: tuple[str, str], *, after: bool
) -> None:
    """Nothing was settled, or everything, as the fault has it."""
    topic, name = names
    await service.publish(topic, "a", "b")
    held = await service.pull(name, 2)
    emulator.faults.set(Fault("ABORTED", method="Acknowledge", ack_failure=UNAVAILABLE, after=after, times=1))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await service.acknowledge(name, *held)
    assert refused.value.code() is grpc.StatusCode.ABORTED
    info = ErrorInfo()
    status = Status.FromString(dict(refused.value.trailing_metadata())["grpc-status-details-bin"])
    assert status.details[0].Unpack(info)
    assert dict(info.metadata) == {each.ack_id: UNAVAILABLE for each in held}
    request = types.AcknowledgeRequest(subscription=name, ack_ids=[each.ack_id for each in held])
    assert await service.refusal("Subscriber/Acknowledge", request) == ("INVALID_ARGUMENT" if after else "OK")


async def test_a_failure_that_is_asked_for_holds_over_a_stream(
    emulator: PubSubEmulator, service: Service, names: tuple[str, str]
) -> None:
    """Those of one request fail, and can be acknowledged with the next."""
    topic, name = names
    stream = await service.stream(name)
    await service.publish(topic, "x")
    received = await stream.next()
    emulator.faults.set(Fault("ABORTED", method="Acknowledge", ack_failure=UNAVAILABLE, times=1))
    confirmations = []
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):
            await stream.send(ack_ids=[received.ack_id])
            confirmations.append((await stream.call.read()).acknowledge_confirmation)
    assert [list(each.temporary_failed_ack_ids) for each in confirmations] == [[received.ack_id], []]
    assert [list(each.ack_ids) for each in confirmations] == [[], [received.ack_id]]
    stream.call.cancel()
