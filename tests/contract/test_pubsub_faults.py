"""What the emulator does when it is told to fail: for whom, when, how often, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import types

from relay.dev.pubsub import Fault, PubSubEmulator, Requests, requests_of, set_faults
from relay.errors import DevError
from tests.support.waiting import until_async

if TYPE_CHECKING:
    from tests.contract.conftest import Connect, Service

PATIENCE = 10.0
# How long a caller waits that shall get no answer: the emulator has met its call by then, however busy the machine is.
SOON = 1.0
FOREVER_MS = 3_600_000
STORED_BUT = {
    "an error is answered": (Fault("UNAVAILABLE", method="Publish", after=True), "UNAVAILABLE"),
    "the answer is late": (Fault("OK", method="Publish", after=True, delay_ms=FOREVER_MS), "DEADLINE_EXCEEDED"),
    "the answer never comes": (Fault("OK", method="Publish", after=True, silent=True), "DEADLINE_EXCEEDED"),
}
NOT_STORED_AND = {
    "an error is answered late": (Fault("INTERNAL", method="Publish", delay_ms=1), "INTERNAL"),
    "the work is late": (Fault("OK", method="Publish", delay_ms=FOREVER_MS), "DEADLINE_EXCEEDED"),
    "no answer comes": (Fault("OK", method="Publish", silent=True), "DEADLINE_EXCEEDED"),
    "no call is answered": (Fault("OK", silent=True), "DEADLINE_EXCEEDED"),
}


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


def publish(topic: str, *attributes: dict[str, str]) -> types.PublishRequest:
    """Build a request that is fine, of a message for each of the attributes."""
    messages = [types.PubsubMessage(data=b"x", attributes=each) for each in attributes or ({},)]
    return types.PublishRequest(topic=topic, messages=messages)


async def stored(service: Service, subscription: str) -> int:
    """How many messages wait."""
    return len(await service.pull_now(subscription))


@pytest.mark.parametrize("full", [True, False])
async def test_a_fault_of_a_topic_leaves_the_others_alone(
    emulator: PubSubEmulator, service: Service, *, full: bool
) -> None:
    """The topic is named in full or by its last part; that another one ends like it does not count."""
    topic = await service.topic()
    other = await service.topic()
    named = topic if full else topic.rpartition("/")[2]
    emulator.faults.set(Fault("NOT_FOUND", topic=named))
    assert await service.refusal("Publisher/Publish", publish(topic)) == "NOT_FOUND"
    assert await service.refusal("Publisher/GetTopic", types.GetTopicRequest(topic=topic)) == "NOT_FOUND"
    assert await service.refusal("Publisher/Publish", publish(other)) == "OK"
    assert await service.refusal("Publisher/CreateTopic", types.Topic(name=f"{topic}-longer")) == "OK"
    assert await service.refusal("Publisher/CreateTopic", types.Topic(name=topic)) == "NOT_FOUND"


async def test_one_poisonous_message_refuses_its_request(emulator: PubSubEmulator, service: Service) -> None:
    """Wherever it stands among others; requests without it are taken."""
    topic = await service.topic()
    name = await service.subscription(topic)
    emulator.faults.set(Fault("INTERNAL", method="Publish", attribute="kind", value="poison"))
    good, other, bad = {"kind": "good"}, {"colour": "poison"}, {"kind": "poison"}
    assert await service.refusal("Publisher/Publish", publish(topic, good, other, bad, good)) == "INTERNAL"
    assert await service.refusal("Publisher/Publish", publish(topic, bad)) == "INTERNAL"
    assert await stored(service, name) == 0
    assert await service.refusal("Publisher/Publish", publish(topic, good, other, good)) == "OK"
    assert [dict(each.message.attributes) for each in await service.pull_now(name)] == [good, other, good]


async def test_several_faults_are_in_force_and_the_most_particular_decides(
    emulator: PubSubEmulator, service: Service
) -> None:
    """A message's before a topic's before a method's before everything's, in whatever order they were set."""
    topic, other = await service.topic(), await service.topic()
    emulator.faults.set(
        Fault("UNAVAILABLE"),
        Fault("INTERNAL", method="Publish"),
        Fault("ABORTED", topic=topic),
        Fault("DATA_LOSS", attribute="kind", value="poison"),
    )
    assert await service.refusal("Publisher/Publish", publish(topic, {"kind": "poison"})) == "DATA_LOSS"
    assert await service.refusal("Publisher/Publish", publish(topic)) == "ABORTED"
    assert await service.refusal("Publisher/Publish", publish(other)) == "INTERNAL"
    assert await service.refusal("Publisher/GetTopic", types.GetTopicRequest(topic=other)) == "UNAVAILABLE"


async def test_a_fault_lasts_so_many_calls(emulator: PubSubEmulator, service: Service) -> None:
    """Then the next most particular one is met, or none."""
    topic = await service.topic()
    emulator.faults.set(Fault("ABORTED", topic=topic, times=2), Fault("INTERNAL", method="Publish", times=1))
    answers = [await service.refusal("Publisher/Publish", publish(topic)) for _ in range(4)]
    assert answers == ["ABORTED", "ABORTED", "INTERNAL", "OK"]


async def test_a_slow_emulator_does_its_work_later(emulator: PubSubEmulator, service: Service) -> None:
    """The answer is the ordinary one, and comes no sooner than that."""
    topic = await service.topic()
    name = await service.subscription(topic)
    emulator.faults.set(Fault("OK", method="Publish", delay_ms=200))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await service.refusal("Publisher/Publish", publish(topic)) == "OK"
    assert loop.time() - began >= 0.2
    assert await stored(service, name) == 1


@pytest.mark.parametrize("case", STORED_BUT)
async def test_what_was_stored_may_not_be_known(emulator: PubSubEmulator, service: Service, case: str) -> None:
    """The message is there although its publisher was not told; publishing it again makes two."""
    fault, code = STORED_BUT[case]
    topic = await service.topic()
    name = await service.subscription(topic)
    emulator.faults.set(fault)
    assert await service.refusal("Publisher/Publish", publish(topic), SOON) == code
    emulator.faults.clear()
    assert await service.refusal("Publisher/Publish", publish(topic)) == "OK"
    assert await stored(service, name) == 2


@pytest.mark.parametrize("case", NOT_STORED_AND)
async def test_a_call_that_waits_stores_nothing(emulator: PubSubEmulator, service: Service, case: str) -> None:
    """A caller that gives up takes its work back."""
    fault, code = NOT_STORED_AND[case]
    topic = await service.topic()
    name = await service.subscription(topic)
    emulator.faults.set(fault)
    assert await service.refusal("Publisher/Publish", publish(topic), SOON) == code
    emulator.faults.clear()
    assert await stored(service, name) == 0


async def test_every_part_of_a_fault_travels(emulator: PubSubEmulator, service: Service) -> None:
    """What another process sets is what is in force."""
    topic = await service.topic()
    fault = Fault(
        "ABORTED",
        "Publish",
        "its words",
        topic,
        "kind",
        "poison",
        1,
        after=True,
        times=1,
        ack_failure="TRANSIENT_FAILURE_OTHER",
    )
    assert await set_faults(emulator.address, fault, Fault("OK", silent=True, topic="x")) == {
        "in_force": 2,
        "answered": 0,
    }
    with pytest.raises(grpc.aio.AioRpcError, match="its words") as refused:
        await service.call("Publisher/Publish", publish(topic, {"kind": "poison"}))
    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert await service.refusal("Publisher/Publish", publish(topic, {"kind": "poison"})) == "OK"


@pytest.mark.parametrize(
    "body",
    [
        b'[{"code": "OK"}]',
        b'[{"code": "ABORTED", "times": -1}]',
        b'[{"code": 1}]',
        b'[{"code": "ABORTED", "ack_failure": "FAILURE"}]',
        b'[{"code": "OK", "silent": true, "ack_failure": "TRANSIENT_FAILURE_X"}]',
    ],
)
async def test_a_fault_that_does_nothing_is_refused(service: Service, body: bytes) -> None:
    """An OK that is neither slow nor silent would be no fault."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary("/relay.dev.Faults/Set")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(body)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_requests_are_counted_by_topic(emulator: PubSubEmulator, service: Service) -> None:
    """On arrival, taken or not, for topics that do not exist too; and told to other processes."""
    topic, missing = await service.topic(), "projects/contract/topics/missing"
    await service.publish(topic, "a", "b", "c")
    emulator.faults.set(Fault("UNAVAILABLE", method="Publish", topic=topic))
    for _ in range(2):
        await service.refusal("Publisher/Publish", publish(topic))
    await service.refusal("Publisher/Publish", publish(missing))
    assert emulator.requests.of(topic) == Requests(requests=3, messages=5, alone=2, unanswered=2)
    assert await requests_of(emulator.address, topic) == emulator.requests.of(topic)
    assert await requests_of(emulator.address, missing) == Requests(requests=1, messages=1, alone=1, unanswered=1)
    assert await requests_of(emulator.address, f"{topic}-unknown") == Requests()


async def test_an_emulator_that_was_cut_off_has_kept_everything(connect: Connect) -> None:
    """The same port, topics, backlog and faults; nobody reaches it in between."""
    async with PubSubEmulator() as emulator:
        address = emulator.address
        async with connect("ours", address) as service:
            topic = await service.topic()
            name = await service.subscription(topic)
            await service.publish(topic, "before")
            emulator.faults.set(Fault("ABORTED", method="CreateTopic"))
            await emulator.stop()
            assert await service.refusal("Publisher/Publish", publish(topic)) == "UNAVAILABLE"
        await emulator.start()
        assert emulator.address == address
        async with connect("ours", address) as service:
            await service.publish(topic, "after")
            assert [each.message.data for each in await service.pull_now(name)] == [b"before", b"after"]
            assert await service.refusal("Publisher/CreateTopic", types.Topic(name=f"{topic}-2")) == "ABORTED"


async def test_an_emulator_that_restarted_empty_knows_nothing(emulator: PubSubEmulator, connect: Connect) -> None:
    """The topic is NOT_FOUND until somebody creates it again."""
    async with connect("ours", emulator.address) as service:
        topic = await service.topic()
        name = await service.subscription(topic)
    await emulator.stop()
    emulator.clear()
    await emulator.start()
    async with connect("ours", emulator.address) as service:
        assert await service.refusal("Publisher/Publish", publish(topic)) == "NOT_FOUND"
        assert (
            await service.refusal("Subscriber/GetSubscription", types.GetSubscriptionRequest(subscription=name))
            == "NOT_FOUND"
        )
        await service.call("Publisher/CreateTopic", types.Topic(name=topic))
        assert await service.refusal("Publisher/Publish", publish(topic)) == "OK"


async def test_a_stop_ends_calls_that_wait(emulator: PubSubEmulator, service: Service) -> None:
    """Silence, however long it was to be, does not hold an emulator up."""
    topic = await service.topic()
    emulator.faults.set(Fault("OK", method="Publish", silent=True))
    waiting = asyncio.create_task(service.refusal("Publisher/Publish", publish(topic)))

    async def met() -> bool:
        return emulator.faults.answered > 0

    await until_async(met, "the call waits")
    async with asyncio.timeout(PATIENCE):
        await emulator.stop()
    assert await waiting == "UNAVAILABLE"


async def test_an_emulator_that_runs_is_not_started_twice(emulator: PubSubEmulator) -> None:
    """The first server would go on beside the second, where nobody stops it."""
    with pytest.raises(DevError, match="already"):
        await emulator.start()
