"""The road back out of dead letters, step by step."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

import pytest

from consumers.dead_letter import Choice, DeadLetter
from consumers.dead_letters import attributes_of
from consumers.delivery import Delivery
from consumers.outcome import Dead
from consumers.replay import AT_ONCE, End, Failed, HeldBack, Means, Replayed, Tally, UnknownTopicError, replay
from idempotency import StoreUnavailableError
from relay.brokers.broker import RequestLimits
from relay.brokers.pubsub_reader import Received
from relay.envelope import Message
from relay.errors import BrokerError

SPACE = UUID("0194b6a0-0000-7000-8000-000000000000")
AT = datetime(2025, 1, 31, 12, tzinfo=UTC)


def event_id(number: int) -> UUID:
    """The event of this number."""
    return uuid5(SPACE, str(number))


def dead(number: int, key: str = "", *, consumer: str = "billing", code: str = "GONE") -> Received:
    """A dead letter of the event that was stored as number so and so."""
    body = json.dumps(
        {
            "event_id": str(event_id(number)),
            "event_type": "order.paid",
            "version": 1,
            "occurred_at": "2025-01-31T12:00:00Z",
            "actor": None,
            "data": number,
        }
    ).encode()
    attributes = attributes_of(
        Delivery(body=body, attributes={"sequence": str(number), "own": "x"}, ordering_key=key),
        Dead("gone", code),
        consumer=consumer,
        subscription="billing-orders",
        attempts=3,
        now=AT + timedelta(seconds=number),
    )
    return Received(f"ack-{number}", f"m-{number}-{consumer}", "", attributes, body)


class World:
    """A box, a broker, a store and the consumers' subscriptions, each of which can be told to fail."""

    limits = RequestLimits(1, 10_000_000)

    def __init__(self, *received: Received) -> None:
        self.waiting = list(received)
        self.did: list[str] = []
        self.published: list[tuple[str, Message]] = []
        self.ends: list[End] = []
        self.publishing: dict[int, Exception] = {}
        self.taking: dict[str, Exception] = {}
        self.forgetting: Exception | None = None
        self.most_at_once = 0

    async def replay(self, choice: Choice | None = None, limit: int | None = None) -> Tally:
        """The whole of it."""
        means = Means(box=self, broker=self, topics=self, memory=self, tell=self.ends.append)
        return await replay(means, choice or Choice(), limit)

    async def read(self) -> AsyncGenerator[Received, None]:
        """All of it."""
        for each in self.waiting:
            yield each

    async def take(self, message_id: str) -> None:
        """Acknowledge."""
        if message_id in self.taking:
            raise self.taking[message_id]
        self.did.append(f"take {message_id}")

    async def of(self, letter: DeadLetter) -> str:
        """The topic of the subscription."""
        if not letter.subscription:
            raise UnknownTopicError("names no subscription")
        return f"topic-of-{letter.subscription}"

    async def forget(self, consumer: str, event_id: UUID) -> None:
        """Forget."""
        if self.forgetting:
            raise self.forgetting
        self.did.append(f"forget {consumer} {event_id}")

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Publish."""
        assert seconds > 0
        await asyncio.sleep(0)  # others have their turn, as while a broker is asked
        (message,) = messages
        number = int(message.attributes["sequence"])
        if number in self.publishing:
            raise self.publishing[number]
        self.did.append(f"publish {number}")
        self.published.append((topic, message))
        return [f"new-{number}"]

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def order(self) -> list[int]:
        """What was published, in order."""
        return [int(message.attributes["sequence"]) for _, message in self.published]


def numbers(ends: Sequence[End], kind: type[Failed] | type[HeldBack]) -> list[int]:
    """Which events ended so."""
    return sorted(end.letter.sequence or 0 for end in ends if isinstance(end, kind))


async def test_a_dead_letter_is_forgotten_then_published_then_taken() -> None:
    """In any other order somebody would be killed between two steps, and the event lost."""
    world = World(dead(7, "k"))

    tally = await world.replay()

    assert world.did == [f"forget billing {event_id(7)}", "publish 7", "take m-7-billing"]
    ((topic, message),) = world.published
    assert topic == "topic-of-billing-orders"
    assert message.body == world.waiting[0].body
    assert message.ordering_key == "k"
    assert message.attributes == {"sequence": "7", "own": "x", "replayed_for": "billing"}
    assert tally == Tally(replayed=1, topics={topic})
    assert world.ends == [Replayed(world.ends[0].letter, topic, "new-7")]


async def test_a_key_is_replayed_in_the_order_in_which_its_events_were_stored() -> None:
    """Dead letters have none of their own."""
    world = World(dead(3, "a"), dead(9, "b"), dead(1, "a"), dead(8, "b"), dead(2, "a"))

    await world.replay()

    assert [number for number in world.order if number < 5] == [1, 2, 3]
    assert [number for number in world.order if number > 5] == [8, 9]


async def test_behind_one_that_fails_its_key_waits_and_everybody_else_goes_on() -> None:
    """The order is worth more than the number."""
    world = World(*(dead(number, "a") for number in (1, 2, 3)), dead(4, "b"), dead(5))
    world.publishing[2] = BrokerError("INVALID_ARGUMENT", "too large")

    tally = await world.replay()

    assert sorted(world.order) == [1, 4, 5]
    assert (numbers(world.ends, Failed), numbers(world.ends, HeldBack)) == ([2], [3])
    assert (tally.replayed, tally.failed, tally.held_back) == (3, 1, 1)
    assert not {"take m-2-billing", "take m-3-billing"} & set(world.did)


async def test_two_dead_letters_of_an_event_follow_each_other() -> None:
    """Whether it has a key or not; a second one is tried although the first one failed, for there is no order."""
    world = World(dead(1), dead(1)._replace(message_id="m-1-again"), dead(2))
    world.taking["m-1-billing"] = BrokerError("UNAVAILABLE", "away")

    tally = await world.replay()

    forgotten = f"forget billing {event_id(1)}"
    of_one = [each for each in world.did if each in {forgotten, "publish 1"} or each.startswith("take m-1")]
    assert of_one == [forgotten, "publish 1", forgotten, "publish 1", "take m-1-again"]
    assert (tally.replayed, tally.failed, tally.held_back) == (2, 1, 0)


async def test_two_consumers_wait_for_each_other_in_no_key() -> None:
    """The same events, dead for both, of which one cannot be replayed."""
    world = World(dead(1, "a"), dead(2, "a"), dead(2, "a", consumer="shipping"))
    world.publishing[1] = BrokerError("INVALID_ARGUMENT", "too large")

    await world.replay()

    assert [message.attributes["replayed_for"] for _, message in world.published] == ["shipping"]


async def test_what_was_published_and_not_taken_is_a_failure_that_says_so() -> None:
    """It comes again, and its key has no gap."""
    world = World(dead(1, "a"), dead(2, "a"))
    world.taking["m-1-billing"] = BrokerError("UNAVAILABLE", "away")

    await world.replay()

    assert world.order == [1, 2]
    (failed,) = (end for end in world.ends if isinstance(end, Failed))
    assert failed.topic == "topic-of-billing-orders"


async def test_what_was_not_forgotten_is_not_published() -> None:
    """It would be recognised as done, and its dead letter gone."""
    world = World(dead(1))
    world.forgetting = StoreUnavailableError("away")

    tally = await world.replay()

    assert world.did == []
    assert tally.failed == 1


async def test_an_outage_is_not_told_of_every_message() -> None:
    """After some in a row that fail of nobody's fault, the rest stays where it is."""
    world = World(*map(dead, range(200)))
    world.publishing = dict.fromkeys(range(200), BrokerError("UNAVAILABLE", "away"))

    tally = await world.replay()

    assert tally.failed < 3 * AT_ONCE
    assert tally.failed + tally.held_back == 200


async def test_refused_messages_are_no_outage() -> None:
    """However many there are, the next one may be taken."""
    world = World(*map(dead, range(100)))
    world.publishing = dict.fromkeys(range(99), BrokerError("INVALID_ARGUMENT", "too large"))

    tally = await world.replay()

    assert (tally.failed, tally.replayed) == (99, 1)


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_a_limit_takes_those_that_were_stored_first(limit: int) -> None:
    """Whatever the order in which they are read: the beginning of a key, and not some part of it."""
    world = World(*(dead(number * 7 % 23, "a") for number in range(23)))

    tally = await world.replay(limit=limit)

    assert world.order == list(range(min(limit, 23)))
    assert tally.beyond_limit == max(0, 23 - limit)


async def test_what_is_not_meant_is_left_alone_and_counted() -> None:
    """By the choice; and what is not named although it has to be."""
    world = World(dead(1), dead(2, consumer="shipping"), dead(3, code="UNDECODABLE"))

    tally = await world.replay(Choice(consumer="billing"))

    assert world.order == [1]
    assert (tally.replayed, tally.passed_over) == (1, 2)


async def test_what_was_no_event_is_known_to_no_store() -> None:
    """It is replayed as it was when somebody asks for it by its code."""
    world = World(dead(1, code="UNDECODABLE"))

    await world.replay(Choice(codes=frozenset({"UNDECODABLE"})))

    assert world.did == ["publish 1", "take m-1-billing"]


async def test_one_that_does_not_say_where_it_came_from_is_a_failure() -> None:
    """The others go on."""
    received = dead(1)
    del received.attributes["dead_letter_subscription"]
    world = World(received, dead(2))

    tally = await world.replay()

    assert (tally.failed, tally.replayed) == (1, 1)
