"""Brokers whose failures look like a row's own, and rows whose failures look like a broker's."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from relay.envelope import Message
from relay.errors import BrokerError
from relay.kernel.backoff import Retry
from relay.publisher.events import TopicOpened
from relay.publisher.failures import Attempts
from tests.support.bench import TOPIC, Bench
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count

CODES = ["INVALID_ARGUMENT", "UNAVAILABLE"]
ONE_ATTEMPT = Attempts(1, Retry(5, 120, 0))


def requests_fail(code: str, which: Callable[[int], bool]) -> Callable[[str], Exception | None]:
    """Requests for the default topic fail by their number, which counts from 1."""
    number = 0

    def refuse(topic: str) -> Exception | None:
        nonlocal number
        number += topic == TOPIC
        return BrokerError(code, "misleading") if topic == TOPIC and which(number) else None

    return refuse


def hang(bench: Bench, *, hangs: Callable[[str, Sequence[Message]], bool]) -> None:
    """Some requests take all of their time, by the test's clock."""
    takes = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if hangs(topic, messages):
            await asyncio.sleep(0)  # the others are under way
            bench.later += seconds
            raise BrokerError("DEADLINE_EXCEEDED", "slow")
        return await takes(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]


@pytest.mark.parametrize("code", CODES)
async def test_an_outage_may_end_at_any_request(bench: Bench, code: str) -> None:
    """Rows that failed before its end are asked once more, and taken: nobody is charged."""
    relay = bench.publisher_on(bench.outbox, batch_size=1_000, attempts=ONE_ATTEMPT)
    for last in range(1, 25):
        bench.emit(*range(100))
        bench.broker.refuse = requests_fail(code, lambda number, last=last: number <= last)  # type: ignore[misc]
        for _ in range(8):
            await bench.run_once(relay)
            bench.later += 11
        assert (count(bench.url, PENDING), count(bench.url, FAILED), bench.attempts()) == (0, 0, []), last


@pytest.mark.parametrize("code", CODES)
async def test_an_outage_may_begin_at_any_request(bench: Bench, code: str) -> None:
    """Also in the midst of a search for a row that is at fault: only that row may be charged."""
    for first in range(2, 25):
        bench.query("delete from outbox_events where true returning 1") if first > 2 else None
        ids = bench.emit(*range(100))
        relay = bench.publisher_on(bench.outbox, batch_size=1_000, attempts=ONE_ATTEMPT)
        bench.broker.poisoned = lambda message, sick=ids[90]: (  # type: ignore[misc]
            BrokerError(code, "sick") if message.attributes["event_id"] == sick else None
        )
        bench.broker.refuse = requests_fail(code, lambda number, first=first: number >= first)  # type: ignore[misc]
        for _ in range(4):
            await bench.run_once(relay)
            bench.later += 11
        assert {row[0] for row in bench.attempts()} <= {90}, first


async def test_what_is_in_flight_when_a_pass_begins_may_always_fail(bench: Bench) -> None:
    """A connection that dies while it is idle: rows go out at the second request, and are not charged for the first."""
    ids = []
    for number in range(40):
        ids += bench.emit(number)
        bench.broker.refuse = requests_fail("UNAVAILABLE", lambda number: number == 1)
        await bench.run_once()
        bench.later += 2
    await bench.run_once()
    assert sorted(bench.broker.event_ids) == sorted(ids)
    assert bench.attempts() == []


async def test_a_broker_that_refuses_at_random_fails_no_row(bench: Bench) -> None:
    """Every second request, whatever is in it: all rows go out, and few of them were charged on the way."""
    chance = random.Random(7)  # noqa: S311 -- the same requests fail whenever the test runs
    bench.emit(*range(500))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "x") if chance.random() < 0.5 else None
    for _ in range(200):
        await bench.run_once()
        bench.make_due()
        bench.later += 11
    assert (count(bench.url, PUBLISHED), count(bench.url, FAILED)) == (500, 0)
    assert len(bench.attempts()) < 50


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "DEADLINE_EXCEEDED"])
async def test_a_row_that_was_never_sent_alone_is_not_charged(bench: Bench, code: str) -> None:
    """Two rows fail together as the time ends, while the topic takes others: neither of them pays."""
    ids = bench.emit(*range(4))

    def together(_: str, messages: Sequence[Message]) -> bool:
        names = [message.attributes["event_id"] for message in messages]
        return ids[0] in names and len(names) > 1

    takes = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if together(topic, messages):
            bench.later += 3 * seconds
            raise BrokerError(code, "together")
        return await takes(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    bench.broker.limits = bench.broker.limits.__class__(messages=2, size_bytes=9_000_000)
    await bench.run_once()
    assert bench.attempts() == []
    assert count(bench.url, FAILED) == 0


async def test_no_request_is_sent_with_less_than_its_time(bench: Bench) -> None:
    """What a search finds out does not depend on how much of the publish budget was left."""
    bench.emit(*range(64))
    given: list[float] = []

    async def publish(_: str, __: Sequence[Message], seconds: float) -> Sequence[str]:
        given.append(seconds)
        bench.later += 0.7 * seconds
        raise BrokerError("INTERNAL", "slow, and then no")

    bench.broker.publish = publish  # type: ignore[method-assign,assignment]
    await bench.run_once()
    bench.later += 11
    await bench.run_once()
    assert len(given) > 3
    assert set(given) == {5.0 / 3.2}


async def test_a_message_that_is_too_large_for_the_way_stops_nobody(bench: Bench) -> None:
    """Proxies answer RESOURCE_EXHAUSTED to a large message: it travels alone, waits uncharged, and others go out."""
    ids = bench.emit(0, data="x" * 2_000_000) + bench.emit(*range(1, 100))
    bench.query("update outbox_events set attempt_count = 1 where aggregate_id::int < 50 returning 1")
    bench.broker.poisoned = lambda message: (
        BrokerError("RESOURCE_EXHAUSTED", "larger than max") if message.size_bytes > 1_000_000 else None
    )
    await bench.run_once()
    assert sorted(bench.broker.event_ids) == sorted(ids[1:])
    for number in range(5):
        ids += bench.emit(200 + number)
        bench.later += 11
        await bench.run_once()
    assert sorted(bench.broker.event_ids) == sorted(ids[1:])
    assert {row[1] for row in bench.attempts()} == {1}


@pytest.mark.parametrize(("code", "ends"), [("INVALID_ARGUMENT", "failed"), ("INTERNAL", "charged")])
async def test_more_bad_rows_than_a_batch_hold_up_nobody(bench: Bench, code: str, ends: str) -> None:
    """A bad deploy: the topic's newest rows are asked as controls, so each batch of bad rows is charged at once."""
    bad = set(bench.emit(*range(350)))
    good = bench.emit(*range(1_000, 1_100))
    bench.broker.poisoned = lambda message: BrokerError(code, "bad") if message.attributes["event_id"] in bad else None
    relay = bench.publisher_on(bench.outbox, publish_seconds=60.0)
    await bench.run_once(relay)
    assert sorted(bench.broker.event_ids) == sorted(good)
    assert {row[0] for row in bench.attempts()} == set(range(350))
    assert count(bench.url, FAILED) == (350 if ends == "failed" else 0)


async def test_a_way_that_carries_only_small_requests_is_found_out(bench: Bench) -> None:
    """Larger ones hang: what failed is sent in smaller and smaller parts, until they pass."""
    bench.emit(*range(100))
    hang(bench, hangs=lambda _, messages: len(messages) > 2)
    for _ in range(12):
        await bench.run_once()
        bench.later += 11
    assert (count(bench.url, PUBLISHED), bench.attempts()) == (100, [])


async def test_nothing_begins_after_the_budget(bench: Bench) -> None:
    """A probe that used it up is not followed by a batch, which would outlast the time that a pass is given."""
    bench.emit(*range(10), topic="hangs")
    hang(bench, hangs=lambda topic, _: topic == "hangs")
    await bench.run_once()
    bench.emit(1)
    bench.later += 11
    began = bench.later
    report = await bench.run_once(seconds=3.0)  # a probe of two requests that hang takes 3.1 s
    assert bench.later - began < 3.0 + 5.0 / 3.2
    assert report.updated == 0


class TestTick:
    """Every pass is a new process: what it does not do at once, nobody remembers."""

    async def tick(self, bench: Bench, **values: Any) -> None:
        """One pass of a relay that knows nothing."""
        relay = bench.publisher_on(bench.open_outbox(), **values)
        await bench.run_once(relay)
        await relay.close()

    async def test_a_message_that_hangs_stops_nobody(self, bench: Bench) -> None:
        """Its request leaves time to publish what stands around it."""
        ids = bench.emit(*range(64))
        hang(bench, hangs=lambda _, sent: any(message.attributes["event_id"] == ids[20] for message in sent))
        for number in range(12):
            ids += bench.emit(100 + number)
            await self.tick(bench)
        assert sorted(bench.broker.event_ids) == sorted({*ids} - {ids[20]})
        assert {row[0] for row in bench.attempts()} <= {20}

    @pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL"])
    async def test_a_batch_of_bad_rows_in_front_stops_nobody_for_ever(self, bench: Bench, code: str) -> None:
        """The newest row is asked too: it goes out, and is the control by which those in front are charged."""
        bad = set(bench.emit(*range(20)))
        good = bench.emit(*range(100, 120))
        bench.broker.poisoned = lambda message: (
            BrokerError(code, "x") if message.attributes["event_id"] in bad else None
        )
        for _ in range(20):
            await self.tick(bench, batch_size=10)
        assert sorted(bench.broker.event_ids) == sorted(good)
        assert {row[0] for row in bench.attempts()} <= set(range(20))
        assert bench.attempts() != []


async def test_topics_that_hang_leave_room_for_the_others(bench: Bench) -> None:
    """However many of them there are, each pass has a batch."""
    for number in range(6):
        bench.emit(*range(10), topic=f"hangs-{number}")
    hang(bench, hangs=lambda topic, _: topic != TOPIC)
    await bench.run_once(seconds=20)
    for number in range(10):
        ids = bench.emit(100 + number)
        bench.later += 10.25
        await bench.run_once(seconds=20)
        assert ids[0] in bench.broker.event_ids
    assert bench.attempts() == []


async def test_a_probe_that_the_database_ends_stops_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes again later; the pass after it has its batch."""
    bench.emit(1, topic="sick")
    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "x") if topic == "sick" else None
    await bench.run_once()
    ids = bench.emit(2)

    async def ended(*_: Any, **__: Any) -> Any:
        raise psycopg.errors.QueryCanceled

    monkeypatch.setattr("relay.outbox.batch.Batch.candidates", ended)
    bench.later += 1
    with pytest.raises(psycopg.errors.QueryCanceled):
        await bench.run_once()
    await bench.run_once()
    assert bench.broker.event_ids == ids


async def test_errors_of_the_machine_are_nobodys_fault(bench: Bench) -> None:
    """No file descriptor left, for a day: that is an outage."""
    bench.emit(*range(50))
    bench.broker.refuse = lambda _: OSError(24, "too many open files")
    relay = bench.publisher_on(bench.outbox, attempts=ONE_ATTEMPT)
    for _ in range(20):
        await bench.run_once(relay)
        bench.later += 11
    assert (count(bench.url, FAILED), bench.attempts()) == (0, [])


async def test_a_type_that_is_new_to_an_open_topic_is_learnt(bench: Bench) -> None:
    """Its rows are claimed once, not sent, and from then on left out; those of other topics go out in the same pass."""
    bench.stop_clock()  # the circuit stays open between the passes
    bench.emit(1)
    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "x") if topic == TOPIC else None
    await bench.run_once()
    asked = len(bench.broker.asked)
    bench.emit(*range(2, 150), event_type="new.to.it")
    ids = bench.emit(200, topic="others")
    await bench.run_once()
    assert bench.broker.event_ids == ids
    assert [topic for topic, _ in bench.broker.asked[asked:]] == ["others"]
    assert len([event for event in bench.seen if isinstance(event, TopicOpened)]) == 1
    bench.broker.refuse = lambda _: None
    bench.later += 1
    await bench.run_once()
    assert count(bench.url, PUBLISHED) == 150
