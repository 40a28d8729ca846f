"""What our emulator promises beyond the service: faults, a clock, a process, an orderly end."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import types

from relay.dev.pubsub import Fault, PubSubEmulator, set_faults

if TYPE_CHECKING:
    from tests.contract.conftest import Connect, Service

PATIENCE = 10.0


@pytest.fixture
async def emulator() -> AsyncIterator[PubSubEmulator]:
    """One of its own for each test."""
    async with PubSubEmulator() as emulator:
        yield emulator


@pytest.fixture
async def service(emulator: PubSubEmulator, connect: Connect) -> AsyncIterator[Service]:
    """The emulator, connected."""
    async with connect("ours", emulator.address) as service:
        yield service


def publish(topic: str) -> types.PublishRequest:
    """Build a request that is fine."""
    return types.PublishRequest(topic=topic, messages=[types.PubsubMessage(data=b"x")])


async def test_a_fault_is_answered_until_it_is_cleared(emulator: PubSubEmulator, service: Service) -> None:
    """Every call of the method is answered with the fault, no other is, and nothing is stored."""
    topic = await service.topic()
    name = await service.subscription(topic)
    emulator.faults.set(Fault("UNAVAILABLE", method="Publish"))
    for _ in range(3):
        assert await service.refusal("Publisher/Publish", publish(topic)) == "UNAVAILABLE"
    get = types.GetTopicRequest(topic=topic)
    assert await service.refusal("Publisher/GetTopic", get) == "OK"
    assert emulator.faults.answered == 3
    emulator.faults.clear()
    await service.publish(topic, "after")
    assert [each.message.data for each in await service.pull_now(name)] == [b"after"]


async def test_a_methods_own_fault_comes_before_that_of_every_method(
    emulator: PubSubEmulator, service: Service
) -> None:
    """A fault without a method answers every call but those that have a fault of their own."""
    topic = await service.topic()
    emulator.faults.set(Fault("INTERNAL"), Fault("PERMISSION_DENIED", method="Publish"))
    get = types.GetTopicRequest(topic=topic)
    assert await service.refusal("Publisher/GetTopic", get) == "INTERNAL"
    assert await service.refusal("Publisher/Publish", publish(topic)) == "PERMISSION_DENIED"


async def test_faults_are_set_from_elsewhere(emulator: PubSubEmulator, service: Service) -> None:
    """Another process sets and clears faults over the network, and learns how many were met."""
    topic = await service.topic()
    await set_faults(emulator.address, Fault("RESOURCE_EXHAUSTED", method="Publish"))
    assert await service.refusal("Publisher/Publish", publish(topic)) == "RESOURCE_EXHAUSTED"
    assert await set_faults(emulator.address) == {"in_force": 0, "answered": 1}
    assert await service.refusal("Publisher/Publish", publish(topic)) == "OK"


@pytest.mark.parametrize("body", [b"", b"{", b"{}x", b'["x"]', b'[{"code": "NO_SUCH_CODE"}]'])
async def test_a_fault_that_makes_no_sense_is_refused(service: Service, body: bytes) -> None:
    """What is not a list of faults is INVALID_ARGUMENT, and the faults in force stay."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary("/relay.dev.Faults/Set")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(body)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_outage_ends_what_is_open(emulator: PubSubEmulator, service: Service) -> None:
    """A fault of every method ends open streams and waiting pulls at once."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    await stream.next()
    request = types.PullRequest(subscription=name, max_messages=1)
    pulling = asyncio.create_task(service.refusal("Subscriber/Pull", request))
    await service.publish(topic, *["y"] * 2)
    emulator.faults.set(Fault("UNAVAILABLE"))
    assert await stream.refusal() == "UNAVAILABLE"
    assert await pulling in {"OK", "UNAVAILABLE"}


async def test_stopping_ends_open_streams_as_an_outage_would(emulator: PubSubEmulator, service: Service) -> None:
    """A client whose emulator stops sees UNAVAILABLE, which it retries, and no hanging stream."""
    name = await service.subscription(await service.topic())
    stream = await service.stream(name)
    await stream.call.initial_metadata()
    async with asyncio.timeout(PATIENCE):
        await emulator.stop()
    assert await stream.refusal() == "UNAVAILABLE"


async def test_streams_share_what_comes_one_by_one(service: Service) -> None:
    """Of two streams that wait, neither gets everything."""
    topic = await service.topic()
    name = await service.subscription(topic)
    streams = [await service.stream(name) for _ in range(2)]
    for stream in streams:
        await stream.call.initial_metadata()
    reading = [asyncio.create_task(stream.next()) for stream in streams]
    async with asyncio.timeout(PATIENCE):
        while not all(task.done() for task in reading):
            await service.publish(topic, "x")
    for stream in streams:
        stream.call.cancel()


async def test_deadlines_follow_the_clock_that_was_given(connect: Connect) -> None:
    """With a clock of one's own, ten minutes pass in no time, for a stream that waits too."""
    now = 0.0
    async with PubSubEmulator(clock=lambda: now) as emulator, connect("ours", emulator.address) as service:
        topic = await service.topic()
        name = await service.subscription(topic, ack_deadline_seconds=600)
        await service.publish(topic, "x")
        await service.pull(name, 1)
        stream = await service.stream(name, stream_ack_deadline_seconds=600)
        await stream.call.initial_metadata()
        now = 600.0
        emulator.wake()
        assert (await stream.next()).message.data == b"x"
        stream.call.cancel()


async def test_bytes_that_are_no_request_are_refused(service: Service) -> None:
    """A Publish that cannot be parsed, as with an attribute that is not UTF-8, is INVALID_ARGUMENT."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish"
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(b"\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["Seek", "ModifyPushConfig", "CreateSnapshot"])
async def test_what_is_not_emulated_says_so(service: Service, method: str) -> None:
    """A method that the emulator lacks is UNIMPLEMENTED, and the answer names it."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(
        f"/google.pubsub.v1.Subscriber/{method}"
    )
    with pytest.raises(grpc.aio.AioRpcError, match=f"does not implement {method}") as refused:
        await call(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "setting",
    [
        {"push_config": {"push_endpoint": "https://example.com"}},
        {"bigquery_config": {"table": "p.d.t"}},
    ],
)
async def test_a_setting_that_is_not_emulated_says_so(service: Service, setting: dict[str, object]) -> None:
    """A subscription that would behave differently is refused rather than made."""
    topic = await service.topic()
    with pytest.raises(grpc.aio.AioRpcError, match=next(iter(setting))) as refused:
        await service.subscription(topic, **setting)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Run the emulator's command; show the process and the line that it printed."""
    command = (sys.executable, "-m", "relay.dev.pubsub", *arguments)
    running = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    assert running.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            yield running, (await running.stdout.readline()).decode().strip()
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_until_a_signal(connect: Connect, number: int) -> None:
    """The command prints its address when it listens, and exits 0 on SIGTERM and SIGINT."""
    async with process("--port", "0") as (running, address):
        async with connect("ours", address) as service:
            await service.topic()
        running.send_signal(number)
        assert await running.wait() == 0


async def test_a_port_in_use_is_reported(emulator: PubSubEmulator) -> None:
    """A second emulator on the same port exits 1 instead of sharing its calls."""
    async with process("--port", str(emulator.port)) as (running, line):
        assert line == ""
        assert await running.wait() == 1
