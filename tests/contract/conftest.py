"""The Pub/Sub services that the contract is held against: ours, and Google's own emulator."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import types

from relay.dev.pubsub import PubSubEmulator
from tests.support.brokers import GOOGLE, MEMORY, ON_GOOGLE, OURS, MemoryService

PROJECT = "projects/contract"
PATIENCE = 10.0
"""How long a test waits for what must happen; nothing waits so long for what must not."""
PULL_SECONDS = 3.5
"""How long one of several pulls waits. One that ended at a second would miss, now and then, what rests for a second."""

_GOOGLE_JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"

HANGS = True

# Where Google's emulator (0.8.20) departs from the service. Test -> what it does, whether it hangs.
_FILTER = "test_a_filter_that_makes_no_sense_is_refused"
_BEYOND = "test_a_request_beyond_the_limits_is_refused_whole"
GOOGLE_FAULTS: dict[str, tuple[str, bool]] = {
    "test_what_does_not_exist_is_not_found": ("lists no subscriptions of a missing topic", False),
    "test_an_ack_deadline_out_of_bounds_is_refused[9]": ("accepts less than ten seconds", False),
    "test_a_new_deadline_out_of_bounds_is_refused[601]": ("accepts more than 600 seconds", False),
    "test_a_pull_asks_for_at_least_one_message": ("waits for no message", HANGS),
    "test_a_retry_policy_delays_the_next_delivery": ("ignores retry policies", False),
    "test_a_pull_brings_what_passes_the_filter": ("ignores filters", False),
    "test_a_stream_brings_what_passes_the_filter": ("ignores filters", False),
    "test_a_key_goes_on_past_what_the_filter_keeps_out": ("ignores filters", False),
    f"{_FILTER}[syntax]": ("ignores filters", False),
    f"{_FILTER}[257 bytes]": ("ignores filters", False),
    "test_the_last_attempt_of_a_pull_makes_a_dead_letter": ("forwards no dead letters", HANGS),
    "test_the_last_attempt_of_a_stream_makes_a_dead_letter": ("forwards no dead letters", HANGS),
    "test_a_key_goes_on_without_its_dead_letter": ("forwards no dead letters", HANGS),
    "test_a_dead_letter_needs_nobody_at_its_source": ("forwards no dead letters", HANGS),
    "test_a_dead_letter_passes_the_filters_of_its_topic": ("forwards no dead letters", HANGS),
    "test_a_key_is_acknowledged_in_its_order": ("takes acknowledgements out of turn", False),
    "test_a_stream_confirms_acknowledgements": ("confirms nothing", HANGS),
    "test_a_stream_confirms_deadlines": ("confirms nothing", False),
    "test_a_nack_repeats_the_key_in_order": ("misorders a key after a nack", HANGS),
    "test_a_nack_on_a_stream_repeats_the_key_in_order": ("misorders a key after a nack", HANGS),
    "test_a_stream_holds_no_more_messages_than_it_agreed_to": ("ignores flow control", False),
    "test_a_stream_holds_no_more_bytes_than_it_agreed_to": ("ignores flow control", False),
    "test_two_streams_share_the_messages": ("ignores flow control: one gets all", HANGS),
    f"{_BEYOND}[101 attributes]": ("has no limits on attributes", False),
    f"{_BEYOND}[empty attribute key]": ("has no limits on attributes", False),
    f"{_BEYOND}[attribute key of 257 bytes]": ("has no limits on attributes", False),
    f"{_BEYOND}[reserved attribute key]": ("has no limits on attributes", False),
    f"{_BEYOND}[attribute value of 1,025 bytes]": ("has no limits on attributes", False),
    f"{_BEYOND}[ordering key of 1,025 bytes]": ("has no limit on ordering keys", False),
    f"{_BEYOND}[two ordering keys]": ("accepts several ordering keys in a request", False),
    f"{_BEYOND}[one with an ordering key, one without]": (
        "accepts several ordering keys in a request",
        False,
    ),
    f"{_BEYOND}[10,000,001 bytes]": ("accepts somewhat more than 10 MB", False),
    f"{_BEYOND}[12 MB]": ("never answers a request of 12 MB", HANGS),
}

_names = count(1)
_run = f"{os.getpid()}-{time.time_ns()}"


@dataclass
class Stream:
    """An open StreamingPull, read by message."""

    call: Any
    _buffer: list[Any] = field(default_factory=list)

    async def send(self, **request: Any) -> None:
        """Send a request on the stream."""
        await self.call.write(types.StreamingPullRequest(request))

    async def next_response(self) -> list[Any]:
        """Return the received messages of the next response that has any."""
        async with asyncio.timeout(PATIENCE):
            while True:
                response = await self.call.read()
                if response is grpc.aio.EOF:
                    await self.refusal()
                    return []
                if response.received_messages:
                    return list(response.received_messages)

    async def next(self) -> Any:
        """Return the next received message."""
        if not self._buffer:
            self._buffer = await self.next_response()
        return self._buffer.pop(0)

    async def refusal(self) -> str:
        """Return the name of the code that the service ends the stream with."""
        async with asyncio.timeout(PATIENCE):
            with suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            code: grpc.StatusCode = await self.call.code()
            return code.name


@dataclass
class Service:
    """A Pub/Sub service under test, spoken to in its own messages over bare gRPC."""

    name: str
    address: str
    channel: grpc.aio.Channel

    async def call(self, method: str, request: Any, timeout: float = PATIENCE) -> Any:  # noqa: ASYNC109 - the RPC's own
        """Call a method, by names such as Publisher/Publish, that answers without a stream."""
        answer: Any = _ANSWERS.get(method)
        stub: Any = self.channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=type(request).serialize,
            response_deserializer=answer.deserialize if answer else None,
        )
        return await stub(request, timeout=timeout)

    async def refusal(self, method: str, request: Any, timeout: float = PATIENCE) -> str:  # noqa: ASYNC109 - the same
        """Call a method and return the name of the code that it answers."""
        try:
            await self.call(method, request, timeout)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async def topic(self) -> str:
        """Create a topic of a new name."""
        topic = types.Topic(name=f"{PROJECT}/topics/t-{_run}-{next(_names)}")
        await self.call("Publisher/CreateTopic", topic)
        return topic.name

    async def subscription(self, topic: str, **settings: Any) -> str:
        """Create a subscription of a new name."""
        name = f"{PROJECT}/subscriptions/s-{_run}-{next(_names)}"
        subscription = types.Subscription({"name": name, "topic": topic, **settings})
        await self.call("Subscriber/CreateSubscription", subscription)
        return name

    async def publish(self, topic: str, *messages: Any) -> list[str]:
        """Publish messages, of which a string stands for one with such data, in one request."""
        built = [
            types.PubsubMessage(data=each.encode() if isinstance(each, str) else each)
            if isinstance(each, str | bytes)
            else types.PubsubMessage(each)
            for each in messages
        ]
        request = types.PublishRequest(topic=topic, messages=built)
        answer = await self.call("Publisher/Publish", request, timeout=3 * PATIENCE)
        return list(answer.message_ids)

    async def pull_now(self, subscription: str, limit: int = 1_000) -> list[Any]:
        """Pull what there is at once."""
        raw = types.PullRequest.pb()(subscription=subscription, max_messages=limit, return_immediately=True)
        answer = await self.call("Subscriber/Pull", types.PullRequest.wrap(raw))
        return list(answer.received_messages)

    async def pull(self, subscription: str, wanted: int) -> list[Any]:
        """Pull until so many messages came, in the order in which they came."""
        received: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            while len(received) < wanted:
                with suppress(grpc.aio.AioRpcError):
                    request = types.PullRequest(subscription=subscription, max_messages=wanted)
                    answer = await self.call("Subscriber/Pull", request, timeout=PULL_SECONDS)
                    received.extend(answer.received_messages)
        return received

    async def acknowledge(self, subscription: str, *received: Any) -> None:
        """Acknowledge received messages."""
        ack_ids = [each.ack_id for each in received]
        request = types.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
        await self.call("Subscriber/Acknowledge", request)

    async def modify(self, subscription: str, seconds: int, *received: Any) -> None:
        """Give received messages a new deadline; 0 gives them back."""
        request = types.ModifyAckDeadlineRequest(
            subscription=subscription,
            ack_ids=[each.ack_id for each in received],
            ack_deadline_seconds=seconds,
        )
        await self.call("Subscriber/ModifyAckDeadline", request)

    async def stream(self, name: str, **first: Any) -> Stream:
        """Open a StreamingPull of a subscription."""
        stub: Any = self.channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=types.StreamingPullRequest.serialize,
            response_deserializer=types.StreamingPullResponse.deserialize,
        )
        stream = Stream(stub())
        request = {"subscription": name, "stream_ack_deadline_seconds": 10, **first}
        await stream.send(**request)
        return stream


_ANSWERS: dict[str, Any] = {
    "Publisher/CreateTopic": types.Topic,
    "Publisher/GetTopic": types.Topic,
    "Publisher/ListTopics": types.ListTopicsResponse,
    "Publisher/ListTopicSubscriptions": types.ListTopicSubscriptionsResponse,
    "Publisher/Publish": types.PublishResponse,
    "Subscriber/CreateSubscription": types.Subscription,
    "Subscriber/GetSubscription": types.Subscription,
    "Subscriber/ListSubscriptions": types.ListSubscriptionsResponse,
    "Subscriber/UpdateSubscription": types.Subscription,
    "Subscriber/Pull": types.PullResponse,
}


Connect: TypeAlias = Callable[[str, str], AbstractAsyncContextManager[Service]]


@asynccontextmanager
async def _connected(name: str, address: str) -> AsyncIterator[Service]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield Service(name, address, channel)


@pytest.fixture
def connect() -> Connect:
    return _connected


@pytest.fixture(params=[OURS, ON_GOOGLE])
async def service(request: pytest.FixtureRequest) -> AsyncIterator[Service | MemoryService]:
    if request.param == MEMORY:
        yield MemoryService()
        return
    if request.param == GOOGLE:
        _apply_known_fault(request)
        address: str = request.getfixturevalue("google_emulator")
        async with _connected(GOOGLE, address) as connected:
            yield connected
        return
    async with PubSubEmulator() as emulator, _connected(OURS, emulator.address) as connected:
        yield connected


def _apply_known_fault(request: pytest.FixtureRequest) -> None:
    """Look a test up in GOOGLE_FAULTS, by its name with or without parameters."""
    name = request.node.name.replace(f"[{GOOGLE}]", "").replace(f"{GOOGLE}-", "")
    if name in GOOGLE_FAULTS:
        reason, hangs = GOOGLE_FAULTS[name]
        if hangs:
            pytest.skip(f"would hang: {reason}")
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def google_emulator() -> Iterator[str]:
    jar, java = _google_jar(), shutil.which("java")
    if jar is None or java is None:
        pytest.skip("Google's Pub/Sub emulator is not installed: no gcloud with its jar, or no java")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [java, "-Xmx512m", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _google_jar() -> Path | None:
    """Find the emulator beside gcloud, without asking gcloud, which takes a second to answer."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    roots = Path(gcloud).resolve().parents
    return next((jar for root in roots[:2] for jar in sorted(root.glob(_GOOGLE_JAR))), None)
