"""What every broker keeps: the protocol `Broker`, over each service that it speaks to."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from google.auth import jwt
from google.pubsub_v1.types import Topic

from relay.brokers.broker import Broker
from relay.brokers.pubsub import PubSub
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.emulator import EmbeddedPubSub
from relay.dev.pubsub import Fault, PubSubEmulator
from relay.dev.sandbox import Sandbox
from relay.envelope import Message
from relay.errors import BrokerError
from tests.support.brokers import MEMORY, ON_GOOGLE, OURS, MemoryService
from tests.support.pubsub import GuardedPubSub, key_file
from tests.support.streams import answered

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PROJECT = "contract"
# What the table lets in at most; the services take 10 MB.
MESSAGE_BYTES = 9_500_000
SECONDS = 10.0
# What a loaded machine may add to a limit of ours.
SLACK = 5.0
# The last is the broker that those who emit have in their tests.
every_broker = pytest.mark.parametrize("service", [OURS, ON_GOOGLE, MEMORY], indirect=True)
REFUSED_OR_SILENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


def message(body: bytes = b"{}", ordering_key: str = "", **attributes: str) -> Message:
    """A message, with its size as the outbox would count it."""
    size = len(body) + sum(len(name.encode()) + len(value.encode()) + 8 for name, value in attributes.items())
    return Message(body, attributes, size, ordering_key)


@pytest.fixture
async def broker(service: Service | MemoryService) -> AsyncIterator[Broker]:
    """Pub/Sub, on our emulator and on Google's; and the one in memory."""
    if isinstance(service, MemoryService):
        yield service.broker
        return
    opened = PubSub(PubSubAddress(PROJECT, service.address))
    yield opened
    await opened.close()


@pytest.fixture
async def emulator() -> AsyncIterator[PubSubEmulator]:
    """Ours, to be told what to answer."""
    async with PubSubEmulator() as running:
        yield running


@pytest.fixture
async def faulty(emulator: PubSubEmulator) -> AsyncIterator[Broker]:
    """A broker whose service is ours to break, with the topic `known`."""
    address = PubSubAddress(PROJECT, emulator.address)
    await create_topic(address)
    opened = PubSub(address)
    yield opened
    await opened.close()


@pytest.fixture
def process() -> Iterator[EmbeddedPubSub]:
    """Ours, as a process that can be stopped, suspended, and started on the same port."""
    with Sandbox() as sandbox:
        server = EmbeddedPubSub(sandbox)
        server.start()
        yield server


@pytest.fixture
async def distant(process: EmbeddedPubSub) -> AsyncIterator[Broker]:
    """A broker that is connected to the process."""
    address = PubSubAddress(PROJECT, process.url)
    await create_topic(address)
    opened = PubSub(address)
    await opened.publish("known", [message()], SECONDS)
    yield opened
    await opened.close()


async def create_topic(address: PubSubAddress) -> None:
    """Create the topic `known`."""
    async with address.publisher() as publisher:
        await publisher.create_topic(Topic(name=address.topic("known")), timeout=SECONDS)


async def refusal(broker: Broker, topic: str = "known", seconds: float = SECONDS) -> str:
    """Publish a message, and answer with the code of what is raised."""
    with pytest.raises(BrokerError) as refused:
        await broker.publish(topic, [message()], seconds)
    return refused.value.code


async def until_taken(broker: Broker) -> float:
    """Publish until the broker answers for the topic or the message; how many seconds that took."""
    began = time.monotonic()
    async with asyncio.timeout(6 * SECONDS):
        while True:
            try:
                await broker.publish("known", [message()], SECONDS)
            except BrokerError as error:
                if error.code not in REFUSED_OR_SILENT:
                    break
                await asyncio.sleep(0.01)
            else:
                break
    return time.monotonic() - began


@every_broker
async def test_ids_come_back_in_order_one_for_each_message(service: Service, broker: Broker) -> None:
    """The id that a message arrives with is the one that stands in its place in the answer."""
    topic = await service.topic()
    subscription = await service.subscription(topic)

    ids = await broker.publish(topic, [message(str(number).encode()) for number in range(50)], SECONDS)

    arrived = {each.message.message_id: each.message.data for each in await service.pull(subscription, 50)}
    assert [arrived[each] for each in ids] == [str(number).encode() for number in range(50)]
    assert len(set(ids)) == 50


@every_broker
async def test_a_message_arrives_unchanged(service: Service, broker: Broker) -> None:
    """Body, attributes and ordering key, whatever the alphabet; bytes that are no text; an empty value."""
    topic = await service.topic()
    subscription = await service.subscription(topic, enable_message_ordering=True)
    sent = [
        message('{"name": "Zoë 🎉 日本"}'.encode(), "clé-日本", größe="ñ🎉", empty=""),
        message(b"\x00\xff\xfe not text", "clé-日本"),
    ]

    await broker.publish(topic, sent, SECONDS)

    arrived = [each.message for each in await service.pull(subscription, 2)]
    assert [(each.data, dict(each.attributes), each.ordering_key) for each in arrived] == [
        (each.body, each.attributes, each.ordering_key) for each in sent
    ]


@every_broker
async def test_a_request_is_taken_whole_or_not_at_all(service: Service, broker: Broker) -> None:
    """One message that the service refuses keeps its neighbours out."""
    topic = await service.topic()
    subscription = await service.subscription(topic)

    with pytest.raises(BrokerError) as refused:
        await broker.publish(topic, [message(b"before"), message(b""), message(b"behind")], SECONDS)
    await broker.publish(topic, [message(b"next")], SECONDS)

    assert refused.value.code == "INVALID_ARGUMENT"
    assert [each.message.data for each in await service.pull(subscription, 1)] == [b"next"]
    assert await service.pull_now(subscription) == []


async def test_a_topic_is_named_in_short_or_in_full(service: Service, broker: Broker) -> None:
    """Both names are of one topic."""
    topic = await service.topic()
    subscription = await service.subscription(topic)

    for name in (topic, topic.rpartition("/")[2]):
        await broker.publish(name, [message(name.encode())], SECONDS)

    arrived = {each.message.data.decode() for each in await service.pull(subscription, 2)}
    assert arrived == {topic, topic.rpartition("/")[2]}


@every_broker
async def test_a_topic_that_is_not_there_is_not_found(broker: Broker) -> None:
    """Under the name that gRPC has for it."""
    assert await refusal(broker, "nobody-made-this") == "NOT_FOUND"


@every_broker
async def test_a_request_at_the_brokers_own_limits_is_taken(service: Service, broker: Broker) -> None:
    """As many messages as one request may hold, and as many bytes, in attributes as well as in bodies."""
    topic = await service.topic()
    each_bytes = broker.limits.size_bytes // broker.limits.messages
    attributes = {f"name-{number:02}": "v" * 24 for number in range(100)}
    empty = message(b"", **attributes)
    full = [message(b"x" * (each_bytes - empty.size_bytes), **attributes)] * broker.limits.messages

    assert sum(each.size_bytes for each in full) == broker.limits.size_bytes
    assert len(await broker.publish(topic, full, 3 * SECONDS)) == broker.limits.messages


@every_broker
async def test_the_largest_message_of_the_outbox_is_taken(service: Service, broker: Broker) -> None:
    """It goes alone, in a request larger than the others."""
    topic = await service.topic()
    subscription = await service.subscription(topic)

    await broker.publish(topic, [message(b"x" * MESSAGE_BYTES)], 3 * SECONDS)

    (arrived,) = await service.pull(subscription, 1)
    assert len(arrived.message.data) == MESSAGE_BYTES


@pytest.mark.parametrize(
    "code",
    [
        "ABORTED",
        "DEADLINE_EXCEEDED",
        "FAILED_PRECONDITION",
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNAVAILABLE",
        "UNKNOWN",
    ],
)
async def test_a_refusal_has_its_code_and_is_asked_for_once(
    emulator: PubSubEmulator, faulty: Broker, code: str
) -> None:
    """The publisher decides what to try again, and when."""
    emulator.faults.set(Fault(code, method="Publish", detail="the service's own words"))

    with pytest.raises(BrokerError, match="the service's own words") as refused:
        await faulty.publish("known", [message()], SECONDS)

    assert refused.value.code == code
    assert emulator.faults.answered == 1
    emulator.faults.clear()
    assert len(await faulty.publish("known", [message()], SECONDS)) == 1


async def test_a_server_that_says_nothing_costs_the_time_granted() -> None:
    """It accepts the connection, and that is all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = PubSub(PubSubAddress(PROJECT, f"127.0.0.1:{silent.getsockname()[1]}"))
        began = time.monotonic()
        assert await refusal(broker, seconds=0.3) in REFUSED_OR_SILENT
        assert time.monotonic() - began < 0.3 + SLACK
        await broker.close()


async def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    """Nobody waits out the time granted for a connection that is refused."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, so that nobody else listens there
        broker = PubSub(PubSubAddress(PROJECT, f"127.0.0.1:{closed.getsockname()[1]}"))
        began = time.monotonic()
        assert await refusal(broker, seconds=60.0) == "UNAVAILABLE"
        assert time.monotonic() - began < SLACK
        await broker.close()


async def test_a_server_that_hangs_costs_the_time_granted(process: EmbeddedPubSub, distant: Broker) -> None:
    """A connection that is there does not mean an answer; when the server goes on, so does the client."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert await refusal(distant, seconds=0.3) == "DEADLINE_EXCEEDED"
        assert time.monotonic() - began < 0.3 + SLACK
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert len(await distant.publish("known", [message()], SECONDS)) == 1


async def test_a_broker_that_comes_back_is_used_again(process: EmbeddedPubSub, distant: Broker) -> None:
    """By the same client, on the same port, and soon."""
    process.stop()
    assert await refusal(distant) == "UNAVAILABLE"
    process.start()
    assert await until_taken(distant) < SLACK


@pytest.mark.slow("an outage of seconds")
async def test_a_long_outage_does_not_lengthen_the_pauses_between_attempts() -> None:
    """A broker that was away for an hour is found again as soon as one that was away for seconds.

    Left to itself, gRPC's pauses have grown to seconds by the sixth attempt, and grow up to two minutes.
    """
    attempts: list[float] = []
    sixth = asyncio.Event()

    async def refuse(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        attempts.append(time.monotonic())
        if len(attempts) == 6:
            sixth.set()

    async with answered(refuse) as port:
        broker = PubSub(PubSubAddress(PROJECT, f"127.0.0.1:{port}"))
        asking = asyncio.create_task(until_taken(broker))
        async with asyncio.timeout(6 * SECONDS):
            await sixth.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await broker.close()

    # The five pauses are 3.3 s together, and 16 s where gRPC chooses them, a fifth more or less.
    assert attempts[5] - attempts[0] < 4.0 + SLACK


@pytest.fixture
async def guarded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GuardedPubSub]:
    """A service over TLS, whose certificate this process trusts."""
    service = GuardedPubSub(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    # What the library connects with, save for whom it trusts.
    trusting = partial(grpc.composite_channel_credentials, grpc.ssl_channel_credentials(service.certificate))
    monkeypatch.setattr(grpc, "compute_engine_channel_credentials", trusting)
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    await service.start()
    yield service
    await service.stop()


async def test_a_key_signs_every_request_and_an_outage_ends_soon_for_it_too(guarded: GuardedPubSub) -> None:
    """Over TLS, at a regional endpoint, without asking anybody else for a token."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    broker = PubSub(PubSubAddress(PROJECT, endpoint=guarded.endpoint, key=key_file(key)))

    assert len(await broker.publish("known", [message()] * 3, SECONDS)) == 3
    await guarded.stop()
    assert await refusal(broker) == "UNAVAILABLE"
    await guarded.start()
    assert await until_taken(broker) < SLACK
    await broker.close()

    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for authorization in guarded.authorizations:
        claims = jwt.decode(authorization.removeprefix("Bearer "), public)  # type: ignore[no-untyped-call]
        assert claims["iss"] == key_file(key)["client_email"]
    assert len(guarded.authorizations) == 2
