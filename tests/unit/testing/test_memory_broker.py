"""The broker in memory: what it keeps, and what it refuses when it is told to."""

import time

import pytest

from relay.envelope import Message
from relay.errors import BrokerError
from relay.testing import MemoryBroker, RelayedMessage


def message(number: int = 1, ordering_key: str = "") -> Message:
    """A message as the publisher makes it."""
    body = f'{{"event_type": "order.paid", "data": {{"number": {number}}}}}'.encode()
    return Message(body, {"event_id": f"e{number}", "event_type": "order.paid"}, 512, ordering_key)


async def refusal(broker: MemoryBroker, *messages: Message, topic: str = "orders", seconds: float = 5.0) -> str:
    """Publish, and answer with the code of what is raised."""
    with pytest.raises(BrokerError) as refused:
        await broker.publish(topic, messages or [message()], seconds)
    return refused.value.code


async def test_what_is_taken_is_kept_in_its_order() -> None:
    """Each message under a number of its own, in whatever topic."""
    broker = MemoryBroker()
    assert await broker.publish("orders", [message(1), message(2)], 5.0) == ["m1", "m2"]
    assert await broker.publish("billing", [message(3, "k")], 5.0) == ["m3"]

    assert broker.event_ids == ["e1", "e2", "e3"]
    assert [each.message_id for each in broker.on("orders")] == ["m1", "m2"]
    (kept,) = broker.on("billing")
    assert kept == RelayedMessage("billing", "m3", message(3).body, message(3).attributes, "k")
    assert (kept.event_id, kept.event_type, kept.data) == ("e3", "order.paid", {"number": 3})
    assert kept.envelope == {"event_type": "order.paid", "data": {"number": 3}}

    broker.clear()
    assert broker.messages == []
    assert await broker.publish("orders", [message(4)], 5.0) == ["m4"]


async def test_an_outage_is_of_all_topics_or_of_one() -> None:
    """Under the code that the test names, and until it says that it is over."""
    broker = MemoryBroker()
    broker.fail("RESOURCE_EXHAUSTED", topic="orders")
    assert await refusal(broker) == "RESOURCE_EXHAUSTED"
    await broker.publish("billing", [message()], 5.0)
    broker.fail()
    assert await refusal(broker, topic="billing") == "UNAVAILABLE"
    broker.recover()
    await broker.publish("orders", [message(2)], 5.0)
    assert broker.event_ids == ["e1", "e2"]


async def test_poison_keeps_its_neighbours_out() -> None:
    """A request is taken whole or not at all."""
    broker = MemoryBroker()
    broker.poison(lambda each: bool(each.data["number"] == 2))
    broker.poison(lambda each: each.ordering_key == "sick", "INTERNAL")
    assert await refusal(broker, message(1), message(2), message(3)) == "INVALID_ARGUMENT"
    assert await refusal(broker, message(4, "sick")) == "INTERNAL"
    await broker.publish("orders", [message(1), message(3)], 5.0)
    assert broker.event_ids == ["e1", "e3"]


async def test_a_predicate_that_raises_is_remembered() -> None:
    """It is a fault of the test: the publisher would take it for one of the message."""
    broker = MemoryBroker()
    broker.poison(lambda each: bool(each.data["price"]))
    with pytest.raises(KeyError):
        await broker.publish("orders", [message()], 5.0)
    assert isinstance(broker.fault, KeyError)


async def test_a_slow_broker_answers_in_its_time() -> None:
    """And costs who grants it less no more than that."""
    broker = MemoryBroker()
    broker.slow(0.05)
    began = time.monotonic()
    await broker.publish("orders", [message(1)], 5.0)
    assert time.monotonic() - began >= 0.05
    broker.slow(3600)
    assert await refusal(broker, message(2), seconds=0.01) == "DEADLINE_EXCEEDED"
    assert broker.event_ids == ["e1"]


async def test_topics_that_nobody_made_are_not_found() -> None:
    """Where the test says which there are; a wrong route is found then."""
    broker = MemoryBroker(["orders"])
    await broker.publish("orders", [message()], 5.0)
    assert await refusal(broker, topic="order") == "NOT_FOUND"


@pytest.mark.parametrize(
    "messages",
    [
        [message(1, "a"), message(2, "b")],
        [message()] * 1_001,
        [message()._replace(body=b"x" * 5_000_001)] * 2,
        [message(), Message(b"", {}, 0)],
    ],
    ids=["two keys", "too many", "too large", "empty"],
)
async def test_what_the_service_would_refuse_is_refused(messages: list[Message]) -> None:
    """So that nothing passes in a test that would not in production."""
    broker = MemoryBroker()
    assert await refusal(broker, *messages) == "INVALID_ARGUMENT"
    assert broker.messages == []


def test_what_no_broker_says_is_refused() -> None:
    """A misspelt code would stand for another failure."""
    broker = MemoryBroker()
    with pytest.raises(ValueError, match="'UNAVAILBLE' is no code of a broker's; choose from: ABORTED"):
        broker.fail("UNAVAILBLE")
    with pytest.raises(ValueError, match="'' is no code"):
        broker.poison(lambda _: True, "")
    with pytest.raises(ValueError, match="no time to wait"):
        broker.slow(-1)
