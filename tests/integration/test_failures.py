"""Who pays for what the broker does not take, on a real outbox."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
import pytest

from relay.envelope import Message
from relay.errors import BrokerError
from relay.kernel.backoff import Retry
from relay.outbox.floors import Floors
from relay.publisher.events import RowFailed, RowRetried, TopicClosed, TopicOpened, TopicProbed
from relay.publisher.failures import Attempts
from relay.routes import Routes
from tests.support.bench import TOPIC, Bench
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count

# What it may cost to find one row among a thousand.
MOST_FURTHER_REQUESTS = 20
ON_THE_PATH = ["INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "A_CODE_OF_TOMORROW"]


def poison(event_id: str, code: str) -> Callable[[Message], Exception | None]:
    """One message draws the code, in whatever request it is."""
    error = BrokerError(code, "poisonous")
    return lambda message: error if message.attributes["event_id"] == event_id else None


def seen(bench: Bench, kind: type) -> list[Any]:
    """What happened of one kind."""
    return [event for event in bench.seen if isinstance(event, kind)]


@pytest.mark.parametrize("place", [0, 1, 499, 500, 998, 999])
async def test_an_invalid_message_among_a_thousand_fails_alone(bench: Bench, place: int) -> None:
    """It is out in the pass that met it; the others are published by the same."""
    ids = bench.emit(*range(1_000))
    relay = bench.publisher_on(bench.outbox, batch_size=1_000)
    bench.broker.poisoned = poison(ids[place], "INVALID_ARGUMENT")
    report = await bench.run_once(relay)
    assert (report.updated, report.errors) == (999, 1)
    assert sorted(bench.broker.event_ids) == sorted(set(ids) - {ids[place]})
    assert len(bench.broker.asked) - 1 <= MOST_FURTHER_REQUESTS
    assert bench.query(
        "select aggregate_id, failure_reason, last_error_code, attempt_count, last_error "
        "from outbox_events where failed_at is not null"
    ) == [(str(place), "non_retryable", "INVALID_ARGUMENT", 1, "BrokerError: INVALID_ARGUMENT: poisonous")]
    assert seen(bench, TopicOpened) == []


@pytest.mark.parametrize("place", [0, 1, 499, 500, 998, 999])
@pytest.mark.parametrize("code", ON_THE_PATH)
async def test_a_poisonous_message_uses_up_its_own_attempts(bench: Bench, code: str, place: int) -> None:
    """Each of them beside another message that the topic takes later; nobody else pays, and nobody else waits."""
    ids = bench.emit(*range(1_000))
    relay = bench.publisher_on(bench.outbox, batch_size=1_000, attempts=Attempts(3, Retry(5, 5, 0)))
    bench.broker.poisoned = poison(ids[place], code)
    await bench.run_once(relay)
    assert len(bench.broker.asked) - 1 <= MOST_FURTHER_REQUESTS
    assert count(bench.url, PUBLISHED) == 999
    further: list[str] = []
    while count(bench.url, FAILED) == 0:
        assert len(further) < 10, "it does not use up its attempts"
        bench.make_due()
        further += bench.emit(2_000 + len(further))
        bench.later += 1  # the first delay of a circuit that opened
        await bench.run_once(relay)
    bench.later += 1
    await bench.run_once(relay)
    assert sorted(bench.broker.event_ids) == sorted({*ids, *further} - {ids[place]})
    assert bench.query(
        "select aggregate_id, failure_reason, attempt_count from outbox_events where published_at is null"
    ) == [(str(place), "max_attempts", 3)]
    assert bench.query("select count(*) from outbox_events where attempt_count > 0") == [(1,)]
    (failed,) = seen(bench, RowFailed)
    assert (failed.attempt_count, failed.reason, failed.topic) == (3, "max_attempts", TOPIC)
    assert [event.attempt_count for event in seen(bench, RowRetried)] == [1, 2]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"])
async def test_a_long_outage_fails_no_row_and_writes_none(bench: Bench, code: str) -> None:
    """A row must not pay for its broker: 300 passes with one attempt each, and the table is as it was."""
    bench.emit(*range(250))
    relay = bench.publisher_on(bench.outbox, attempts=Attempts(1, Retry(5, 120, 0)))
    bench.broker.refuse = lambda _: BrokerError(code, "away")
    before = bench.query("select xmin::text, ctid::text from outbox_events order by id")
    for _ in range(300):
        bench.later += 10.25
        await bench.run_once(relay)
    assert bench.query("select xmin::text, ctid::text from outbox_events order by id") == before
    assert len(seen(bench, TopicOpened)) == 1
    probes = bench.broker.asked[1 + MOST_FURTHER_REQUESTS :]
    assert {messages for _, messages in probes} == {1}
    assert len(probes) <= 3 * len(seen(bench, TopicProbed))

    bench.broker.refuse = lambda _: None
    bench.later += 10.25
    await bench.run_once(relay)
    assert count(bench.url, PUBLISHED) == 250
    (closed,) = seen(bench, TopicClosed)
    assert (closed.topic, closed.probes) == (TOPIC, len(seen(bench, TopicProbed)))


async def test_a_probe_is_three_rows_at_most(bench: Bench) -> None:
    """The oldest, the next after the last probe, the newest; one a request, and each the first in its turn."""
    bench.emit(*range(50))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    tried: list[str] = []
    bench.broker.poisoned = lambda message: tried.append(message.attributes["aggregate_id"])
    await bench.run_once()
    tried.clear()
    for expected in (["0", "49"], ["1", "49", "0"], ["49", "0", "2"], ["0", "3", "49"]):
        bench.later += 10.25
        await bench.run_once()
        assert tried == expected
        tried.clear()


async def test_a_row_that_fails_beside_a_successful_probe_pays_and_moves_on(bench: Bench) -> None:
    """Sick broker, then only a sick row: what the probe took later than the row is its control."""
    ids = bench.emit(*range(10))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    await bench.run_once()
    bench.broker.refuse = lambda _: None
    bench.broker.poisoned = poison(ids[0], "INTERNAL")
    bench.later += 2
    report = await bench.run_once()
    assert bench.attempts() == [(0, 1, "INTERNAL")]
    assert report.updated == 9
    assert bench.query(
        "select available_at > now() + interval '4 seconds' and available_at < now() + interval '6 seconds' "
        "from outbox_events where attempt_count = 1"
    ) == [(True,)]


async def test_what_an_outage_gave_back_goes_out_when_it_ends_however_slow_the_claim_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No claim has met the open circuit, as the next pass closed it before its own."""
    start = Floors.start

    def slow(floors: Floors, passed_over: Collection[str] = ()) -> int:
        floor = start(floors, passed_over)
        bench.later += 2.0
        return floor

    bench.emit(*range(10))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    with monkeypatch.context() as slowly:
        slowly.setattr(Floors, "start", slow)
        await bench.run_once()
    bench.broker.refuse = lambda _: None
    bench.later += 2
    assert (await bench.run_once()).updated == 10


async def test_what_was_taken_before_a_row_failed_is_no_control(bench: Bench) -> None:
    """The topic took others and then failed: perhaps for good."""
    ids = bench.emit(1)
    await bench.run_once()
    bench.emit(2)
    bench.broker.refuse = lambda _: BrokerError("INTERNAL", "since then")
    await bench.run_once()
    assert bench.broker.event_ids == ids
    assert bench.attempts() == []
    assert [event.topic for event in seen(bench, TopicOpened)] == [TOPIC]


async def test_another_topic_is_no_control(bench: Bench) -> None:
    """Each topic answers for itself."""
    bench.emit(1, topic="sick")
    bench.emit(2)
    bench.broker.refuse = lambda topic: BrokerError("INTERNAL", "x") if topic == "sick" else None
    assert (await bench.run_once()).updated == 1
    assert bench.attempts() == []


@pytest.mark.parametrize("code", ["NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED"])
async def test_a_fault_of_the_topic_charges_nobody_even_with_a_control(bench: Bench, code: str) -> None:
    """Nor is a request searched for a row that would be at fault."""
    bench.broker.limits = bench.broker.limits.__class__(messages=10, size_bytes=9_000_000)
    ids = bench.emit(*range(20))
    bench.broker.poisoned = poison(ids[0], code)
    assert (await bench.run_once()).updated == 10
    assert bench.attempts() == []
    assert len(bench.broker.asked) == 2
    assert [event.topic for event in seen(bench, TopicOpened)] == [TOPIC]


async def test_a_mistyped_topic_of_one_row_keeps_nobody_waiting(bench: Bench) -> None:
    """Its own topic opens; the row stays, and everybody else goes out in the same pass."""
    bench.emit(0, topic="doman-events")
    ids = bench.emit(*range(1, 300))
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "no such topic") if topic != TOPIC else None
    await bench.run_once()
    assert bench.broker.event_ids == ids
    assert [event.topic for event in seen(bench, TopicOpened)] == ["doman-events"]
    assert bench.query(
        "select aggregate_id, attempt_count, failed_at from outbox_events where published_at is null"
    ) == [("0", 0, None)]


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT"])
async def test_a_mistyped_default_topic_fails_nothing_for_good(bench: Bench, code: str) -> None:
    """Whichever code the name draws: rows of other topics flow, and the rest waits for the topic to be there."""
    ids = bench.emit(*range(100))
    other = bench.emit(200, topic="others")
    bench.broker.refuse = lambda topic: BrokerError(code, "no such topic") if topic == TOPIC else None
    for _ in range(30):
        await bench.run_once()
        bench.later += 10.25
    assert bench.broker.event_ids == other
    assert (count(bench.url, FAILED), bench.attempts()) == (0, [])
    bench.broker.refuse = lambda _: None
    await bench.run_once()
    assert sorted(bench.broker.event_ids) == sorted(other + ids)


async def test_many_mistyped_topics_do_not_slow_the_others(bench: Bench) -> None:
    """A bounded number of probes between two batches; each open topic has its turn nevertheless."""
    for number in range(40):
        bench.emit(number, topic=f"mistyped-{number}")
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "x") if topic != TOPIC else None
    await bench.run_once()
    ids = bench.emit(*range(100, 150))
    bench.broker.asked.clear()
    bench.later += 2
    await bench.run_once()
    topics = [topic for topic, _ in bench.broker.asked]
    assert set(topics) == {TOPIC, *(f"mistyped-{number}" for number in range(40))}
    assert topics.index(TOPIC) == 20  # after half of the probes
    assert bench.broker.event_ids == ids
    assert {event.topic for event in seen(bench, TopicProbed)} == {f"mistyped-{number}" for number in range(40)}


@pytest.mark.parametrize("topic", ["bad topic", "ab", "projects/p/topics/", "goog-events"])
async def test_a_topic_that_can_be_none_fails_its_row_alone(bench: Bench, topic: str) -> None:
    """No broker is asked about a name that no topic has; the row is kept with the reason."""
    (bad,) = bench.emit(1)
    with psycopg.connect(bench.url) as connection:
        connection.execute("update outbox_events set topic = %s", (topic,))
    ids = bench.emit(2)
    await bench.run_once()
    assert bench.broker.event_ids == ids
    assert bench.query(
        "select event_id::text, failure_reason, last_error_code from outbox_events where failed_at is not null"
    ) == [(bad, "non_retryable", "invalid_topic")]
    assert [topic for topic, _ in bench.broker.asked] == [TOPIC]


async def test_routes_decide_whose_circuit_it_is(bench: Bench) -> None:
    """Rows of a routed topic that is open are told apart in the database as in the relay."""
    relay = bench.publisher_on(
        bench.open_outbox(), routes=Routes.parse("late.*=late-events,late.but_fine=fine-events", TOPIC)
    )
    bench.emit(1, event_type="late.order")
    fine = bench.emit(2, event_type="late.but_fine") + bench.emit(3)
    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "x") if topic == "late-events" else None
    await bench.run_once(relay)
    assert sorted(bench.broker.event_ids) == sorted(fine)
    late = bench.emit(4, event_type="late.invoice")
    more = bench.emit(5, event_type="late.but_fine") + bench.emit(6, event_type="latecomer")
    await bench.run_once(relay)
    assert sorted(bench.broker.event_ids) == sorted(fine + more)
    bench.broker.refuse = lambda _: None
    bench.later += 1
    assert (await bench.run_once(relay)).updated == 2
    assert late[0] in bench.broker.event_ids
    await relay.close()


async def test_an_outage_in_the_middle_of_the_search_charges_nobody(bench: Bench) -> None:
    """Half of the request was taken, then the broker was gone: the rest is released uncounted."""
    bench.emit(*range(100))
    requests = iter([True, False])

    def refuse(_: str) -> Exception | None:
        # The request, its first half, and everything after that.
        return BrokerError("UNAVAILABLE", "x") if next(requests, True) else None

    bench.broker.refuse = refuse
    assert (await bench.run_once()).updated == 50
    assert bench.attempts() == []
    assert [event.topic for event in seen(bench, TopicOpened)] == [TOPIC]


async def test_the_publish_budget_may_end_in_the_middle_of_the_search(bench: Bench) -> None:
    """What is known is committed, the rest released uncounted; the next passes look at smaller parts."""
    ids = bench.emit(*range(64))
    broker_takes = bench.broker.publish

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if any(message.attributes["event_id"] == ids[20] for message in messages):
            await asyncio.sleep(0)  # the others are under way
            bench.later += seconds  # it hangs until the deadline
            raise BrokerError("DEADLINE_EXCEEDED", "slow")
        return await broker_takes(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    for passes in range(1, 12):
        await bench.run_once()
        assert [row for row in bench.attempts() if row[0] != 20] == []
        bench.later += 1
        if count(bench.url, PUBLISHED) == 63 and bench.attempts():
            break
        bench.emit(100 + passes)
    assert bench.attempts() == [(20, 1, "DEADLINE_EXCEEDED")]
    assert count(bench.url, PENDING) <= 2


async def test_rows_that_another_relay_holds_are_not_probed(bench: Bench) -> None:
    """The probe passes them over and comes back; the topic stays open meanwhile."""
    bench.stop_clock()  # a probe would come later where the look for its rows has taken long
    bench.emit(1, 2)
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    await bench.run_once()
    asked = len(bench.broker.asked)
    bench.broker.refuse = lambda _: None
    with psycopg.connect(bench.url) as other:
        other.execute("select id from outbox_events for update")
        bench.later += 1
        await bench.run_once()
        assert len(bench.broker.asked) == asked
        assert seen(bench, TopicClosed) == []
    bench.later += 1
    assert (await bench.run_once()).updated == 2


async def test_a_topic_without_rows_is_open_no_longer(bench: Bench) -> None:
    """Others published them, or somebody discarded them: a row that comes later is tried at once."""
    bench.emit(1, topic="sick")
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    await bench.run_once()
    bench.query("update outbox_events set failed_at = now(), failure_reason = 'discarded' returning 1")
    bench.later += 1
    await bench.run_once()
    assert [(event.topic, event.taken) for event in seen(bench, TopicClosed)] == [("sick", False)]
    bench.broker.refuse = lambda _: None
    bench.emit(2, topic="sick")
    assert (await bench.run_once()).updated == 1


async def test_retried_rows_are_probed_too(bench: Bench) -> None:
    """A topic whose only rows wait for another attempt is not forgotten."""
    ids = bench.emit(*range(4))
    bench.query("update outbox_events set available_at = now() - interval '1 hour', attempt_count = 1 returning 1")
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    for _ in range(4):
        await bench.run_once()
        bench.later += 10.25
    bench.broker.refuse = lambda _: None
    await bench.run_once()
    assert sorted(bench.broker.event_ids) == sorted(ids)


async def test_raising_the_maximum_revives_nobody(bench: Bench) -> None:
    """Failed is failed; an operator's retry is the way back."""
    bench.emit(1)
    bench.broker.refuse = lambda _: RuntimeError("a bug of the adapter")
    relay = bench.publisher_on(bench.outbox, attempts=Attempts(1, Retry(5, 120, 0)))
    await bench.run_once(relay)
    assert count(bench.url, FAILED) == 1
    bench.broker.refuse = lambda _: None
    assert (await bench.run_once()).processed == 0


async def test_an_open_topic_with_a_backlog_is_not_walked_over_and_over(bench: Bench) -> None:
    """A claim that found nothing but rows of open topics is followed by a pause in proportion to what it cost."""
    bench.emit(*range(300))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    await bench.run_once()
    claims = 0
    whole = bench.outbox.batch

    def counted() -> Any:
        nonlocal claims
        claims += 1
        return whole()

    bench.outbox.batch = counted  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    began, passes = loop.time(), 0
    while not claims or loop.time() - began < 0.2:
        await bench.run_once()
        passes += 1
    assert claims < passes / 10
