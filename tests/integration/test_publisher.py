"""A pass of the publisher, on a real outbox and a broker that the test holds in its hand."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.errors import BrokerError
from relay.kernel.runner import Next, Report
from relay.outbox.queue import operating
from relay.postgres.connect import connect_async
from relay.publisher.events import BatchSettled, RequestFailed, RowFailed
from relay.routes import Routes
from tests.support.bench import TOPIC, Bench
from tests.support.outbox import FAILED, PENDING, PUBLISHED, count
from tests.support.waiting import until_async


async def test_nothing_due_is_idle(bench: Bench) -> None:
    """An empty outbox costs no request and asks for a pause."""
    assert await bench.run_once() == Report(next=Next.IDLE)
    assert bench.broker.requests == []
    assert bench.seen == []


async def test_rows_go_out_in_the_order_of_their_ids(bench: Bench) -> None:
    """A backlog of several batches is drained by one call, oldest first, each row once."""
    ids = bench.emit(*range(350))
    report = await bench.run_once()
    assert bench.broker.event_ids == ids
    assert report == Report(processed=350, updated=350, next=Next.IDLE)
    assert [seen.published for seen in bench.seen if isinstance(seen, BatchSettled)] == [100, 100, 100, 50]
    assert count(bench.url, PUBLISHED) == 350


async def test_success_keeps_the_brokers_id(bench: Bench) -> None:
    """Each row gets the id that the broker gave to its own message, and the time."""
    ids = bench.emit(1, 2, 3)
    await bench.run_once()
    rows = bench.query("select event_id::text, message_id, published_at > created_at from outbox_events order by id")
    assert rows == [(ids[0], "m1", True), (ids[1], "m2", True), (ids[2], "m3", True)]


async def test_the_body_is_the_envelope_as_the_database_has_it(bench: Bench) -> None:
    """What the consumer parses is the payload, character by character beyond ASCII too."""
    bench.emit(1, data={"name": "Grüße, 世界 🚚"})
    await bench.run_once()
    ((_, (message,)),) = bench.broker.requests
    ((payload,),) = bench.query("select payload from outbox_events")
    assert json.loads(message.body) == payload
    assert payload["data"] == {"name": "Grüße, 世界 🚚"}


async def test_a_row_names_its_own_topic(bench: Bench) -> None:
    """One request a topic; the default is for rows that name none."""
    bench.emit(1, 3)
    bench.emit(2, topic="projects/other/topics/audit")
    await bench.run_once()
    assert {topic: len(messages) for topic, messages in bench.broker.requests} == {
        TOPIC: 2,
        "projects/other/topics/audit": 1,
    }


async def test_a_refused_request_leaves_its_rows_as_they_were(bench: Bench) -> None:
    """What the broker took of a batch is settled; the rest pays nothing, and goes out later."""
    bench.emit(1)
    bench.emit(2, topic="sick")
    bench.broker.refuse = lambda topic: BrokerError("UNAVAILABLE", "away") if topic == "sick" else None
    report = await bench.run_once()
    assert (report.updated, report.errors) == (1, 1)
    assert [seen.topic for seen in bench.seen if isinstance(seen, RequestFailed)] == ["sick"]
    assert bench.query("select attempt_count, last_error from outbox_events where published_at is null") == [(0, None)]

    bench.broker.refuse = lambda _: None
    bench.later += 1
    assert (await bench.run_once()).updated == 1
    assert count(bench.url, PENDING) == 0


async def test_a_sick_topic_does_not_slow_the_others(bench: Bench) -> None:
    """Its rows are passed over while it rests: one request, not one a batch."""
    bench.emit(1, topic="sick")
    ids = bench.emit(*range(250))
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "no such topic") if topic == "sick" else None
    report = await bench.run_once()
    assert bench.broker.event_ids == ids
    assert (report.updated, report.next) == (250, Next.IDLE)
    assert [seen.topic for seen in bench.seen if isinstance(seen, RequestFailed)] == ["sick"]


async def test_a_sick_topic_is_asked_again_after_delays_that_double(bench: Bench) -> None:
    """0.5 s to 10 s, each up to 0.25 s longer; the first success ends the series."""
    bench.stop_clock()  # a probe would come later where the look for its rows has taken long
    bench.emit(1)

    async def asked_after(seconds: float) -> bool:
        before = len([seen for seen in bench.seen if isinstance(seen, RequestFailed)])
        bench.later += seconds
        assert (await bench.run_once()).next is Next.IDLE
        return len([seen for seen in bench.seen if isinstance(seen, RequestFailed)]) > before

    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    assert await asked_after(0)
    for delay in (0.5, 1, 2, 4, 8, 10, 10):
        assert not await asked_after(delay * 0.9)
        assert await asked_after(delay * 0.1 + 0.25)
    bench.broker.refuse = lambda _: None
    bench.later += 10.25
    assert (await bench.run_once()).updated == 1

    bench.emit(2)
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    assert await asked_after(0)
    assert await asked_after(0.75)


async def test_a_topic_is_left_alone_from_its_refusal_on(bench: Bench) -> None:
    """A request that took longer to fail than the delay lasts is followed by the delay all the same."""
    bench.emit(1)

    async def publish(*_: Any) -> Sequence[str]:
        bench.later += 15
        raise BrokerError("DEADLINE_EXCEEDED", "slow")

    bench.broker.publish = publish  # type: ignore[method-assign,assignment]
    assert (await bench.run_once()).errors == 1
    assert (await bench.run_once()).processed == 0


async def test_rows_of_an_open_topic_do_not_fill_the_claim(bench: Bench) -> None:
    """Younger rows of other topics go out although a whole backlog stands before them, and nothing is locked twice."""
    bench.emit(*range(250), topic="sick")
    ids = bench.emit(*range(150))
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "no such topic") if topic == "sick" else None
    report = await bench.run_once()
    assert bench.broker.event_ids == ids
    assert (report.processed, report.updated, report.errors, report.next) == (250, 150, 100, Next.IDLE)


async def test_an_adapters_own_error_costs_its_neighbours_nothing(bench: Bench) -> None:
    """An exception that no broker answers with is the row's own attempt; what was taken does not go out again."""
    bench.emit(1, topic="bad")
    ids = bench.emit(2)
    bench.broker.refuse = lambda topic: RuntimeError("a bug in the adapter") if topic == "bad" else None
    for attempt in (1, 2, 3):
        assert (await bench.run_once()).errors == 1
        assert bench.attempts() == [(1, attempt, "RuntimeError")]
        bench.make_due()
    assert bench.broker.event_ids == ids
    bench.broker.refuse = lambda _: None
    assert (await bench.run_once()).updated == 1


async def test_a_broker_that_answers_for_too_few_marks_nothing(bench: Bench) -> None:
    """Ids that cannot be matched with rows mark none of them."""
    bench.emit(1, 2)

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        return (await whole(topic, messages, seconds))[1:]

    whole = bench.broker.publish
    bench.broker.publish = publish  # type: ignore[method-assign]
    assert (await bench.run_once()).updated == 0
    assert bench.attempts() == [(1, 1, "ValueError"), (2, 1, "ValueError")]


async def test_a_row_that_can_never_be_a_message_fails_alone(bench: Bench) -> None:
    """Written by hand past the limits: it is kept with its reason, and its neighbours go out."""
    bench.emit(1, 2, 3)
    bench.query("""update outbox_events set attributes = '{"googly": "x"}' where aggregate_id = '2' returning 1""")
    report = await bench.run_once()
    assert (report.processed, report.updated, report.errors, report.next) == (3, 2, 1, Next.IDLE)
    assert bench.query("""
        select aggregate_id, failure_reason, last_error_code, last_error, attempt_count
          from outbox_events where failed_at is not null
    """) == [
        (
            "2",
            "non_retryable",
            "invalid_attributes",
            "MessageError: attribute 'googly': names that start with goog are the broker's",
            1,
        )
    ]
    (failed,) = [seen for seen in bench.seen if isinstance(seen, RowFailed)]
    assert failed.row.aggregate_id == "2"
    assert await bench.run_once() == Report(next=Next.IDLE)


async def test_a_row_that_can_never_be_a_message_does_not_stop_a_relay_that_probes(bench: Bench) -> None:
    """It may be all that an open topic has to probe with: it fails for good, and what comes after it goes out."""
    bench.emit(1)
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    await bench.run_once()
    bench.query("""update outbox_events set attributes = '{"googly": "x"}' returning 1""")
    bench.later += 11
    assert (await bench.run_once()).errors == 1
    assert count(bench.url, FAILED) == 1

    bench.broker.refuse = lambda _: None
    ids = bench.emit(2)
    bench.later += 11
    await bench.run_once()
    assert bench.broker.event_ids == ids


async def test_a_scheduled_event_waits_for_its_time(bench: Bench) -> None:
    """Later means later by the database's clock, and then at once."""
    bench.emit(1, available_at=datetime.now(UTC) + timedelta(hours=1))
    assert (await bench.run_once()).processed == 0
    tomorrow = bench.publisher_on(bench.open_outbox(skew=3_601))
    assert (await bench.run_once(tomorrow)).updated == 1
    await tomorrow.close()


async def test_due_rows_and_fresh_rows_share_a_pass(bench: Bench) -> None:
    """Neither kind starves behind a backlog of the other."""
    bench.emit(*range(300), available_at=datetime.now(UTC) - timedelta(seconds=1))
    bench.emit(*range(300))
    relay = bench.publisher_on(bench.outbox, batch_size=50)
    await bench.run_once(relay, seconds=0)
    assert sorted(
        bench.query(
            "select available_at = '-infinity', count(*) from outbox_events where published_at is not null group by 1"
        )
    ) == [
        (False, 50),
        (True, 50),
    ]


async def test_two_relays_share_a_backlog_without_overlap(bench: Bench) -> None:
    """Rows that one relay holds are passed over by another, and no row goes out twice."""
    ids = bench.emit(*range(2_000))
    other = bench.publisher_on(bench.open_outbox())
    await asyncio.gather(bench.run_once(), bench.run_once(other))
    assert sorted(bench.broker.event_ids) == sorted(ids)
    await other.close()


async def test_the_lock_is_held_until_the_broker_has_answered(bench: Bench) -> None:
    """While a request is under way no other relay gets at its rows."""
    bench.emit(1)
    other = bench.publisher_on(bench.open_outbox())
    answers: list[Report] = []

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        bench.broker.publish = first  # type: ignore[method-assign]
        answers.append(await bench.run_once(other))
        return await first(topic, messages, seconds)

    first = bench.broker.publish
    bench.broker.publish = publish  # type: ignore[method-assign]
    assert (await bench.run_once()).updated == 1
    assert [answer.processed for answer in answers] == [0]
    assert len(bench.broker.event_ids) == 1
    await other.close()


async def test_a_claim_is_bounded_in_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large events do not pile up in memory: a pass takes as many as fit, and the next goes on."""
    monkeypatch.setattr("relay.publisher.publisher.CLAIM_BYTES", 1_000_000)
    ids = bench.emit(*range(10), data={"text": "x" * 400_000})
    await bench.run_once()
    assert bench.broker.event_ids == ids
    assert [seen.claimed for seen in bench.seen if isinstance(seen, BatchSettled)] == [3, 3, 3, 1]


async def test_large_events_among_small_ones_arrive_whole(bench: Bench) -> None:
    """What a row carries that is not small is read when it is known to fit: its body, and its own attributes."""
    publisher = bench.publisher_on(bench.outbox, batch_size=1_000)
    sizes = [10, 20_000, 10, 3_000, 100_000, 10]
    for number, size in enumerate(sizes):
        bench.emit(number, data={"text": "x" * size}, attributes={"size": str(size)})
    assert (await bench.run_once(publisher)).updated == len(sizes)
    ((_, messages),) = bench.broker.requests
    assert [message.attributes["size"] for message in messages] == [str(size) for size in sizes]
    assert [len(json.loads(message.body)["data"]["text"]) for message in messages] == sizes


async def test_requests_stay_below_the_brokers_limits(bench: Bench) -> None:
    """A batch beyond the limits of one request is cut into several."""
    bench.broker.limits = RequestLimits(messages=40, size_bytes=9_000_000)
    ids = bench.emit(*range(100))
    await bench.run_once()
    assert [len(messages) for _, messages in bench.broker.requests] == [40, 40, 20]
    assert bench.broker.event_ids == ids

    bench.broker.requests.clear()
    bench.broker.limits = RequestLimits(messages=1_000, size_bytes=1_000_000)
    bench.emit(*range(5), data={"text": "x" * 400_000})
    await bench.run_once()
    assert [len(messages) for _, messages in bench.broker.requests] == [2, 2, 1]


async def test_a_spent_budget_ends_the_call_between_batches(bench: Bench) -> None:
    """The batch under way is finished and settled; the rest is reported as left."""
    bench.emit(*range(300))
    report = await bench.run_once(seconds=0)
    assert (report.updated, report.next) == (100, Next.AGAIN)


async def test_a_connection_that_dies_before_the_commit_gives_the_rows_back(bench: Bench) -> None:
    """Nothing that was believed about a lost session survives it: the rows are claimed and published again."""
    ids = bench.emit(1, 2)

    def kill_sessions() -> None:
        bench.broker.meanwhile = lambda: None
        bench.query("""
            select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and state = 'idle in transaction' and pid <> pg_backend_pid()
        """)

    bench.broker.meanwhile = kill_sessions
    with pytest.raises(psycopg.OperationalError):
        await bench.run_once()
    assert count(bench.url, PENDING) == 2
    assert (await bench.run_once()).updated == 2
    assert bench.broker.event_ids == ids + ids


async def test_a_cancelled_pass_releases_its_rows(bench: Bench) -> None:
    """Shutdown in the middle of a request leaves the rows pending and unlocked."""
    bench.emit(1)
    hanging = asyncio.Event()

    async def publish(*_: Any) -> Sequence[str]:
        hanging.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench.broker.publish = publish  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(bench.run_once())
    await hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.query("select count(*) from outbox_events where published_at is null") == [(1,)]
    with psycopg.connect(bench.url) as connection:
        connection.execute("select * from outbox_events for update nowait")


async def test_published_and_failed_rows_are_never_claimed_again(bench: Bench) -> None:
    """Terminal is terminal."""
    bench.emit(1, 2, 3)
    await bench.run_once()
    bench.emit(4)
    bench.query(
        "update outbox_events set failed_at = now(), failure_reason = 'discarded' where aggregate_id = '4' returning 1"
    )
    assert await bench.run_once() == Report(next=Next.IDLE)
    assert (count(bench.url, PUBLISHED), count(bench.url, FAILED)) == (3, 1)


async def test_a_relay_that_hangs_loses_its_locks(bench: Bench) -> None:
    """The database ends a session that waits inside its transaction: the rows are free although nobody let go."""
    ids = bench.emit(1)
    hanging = bench.publisher_on(bench.open_outbox(idle_tx_ms=200))

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        bench.broker.publish = whole  # type: ignore[method-assign]
        await until_async(others_claim, "the rows of the hanging relay are free")
        return await whole(topic, messages, seconds)

    async def others_claim() -> bool:
        return (await bench.run_once()).updated == 1

    whole = bench.broker.publish
    bench.broker.publish = publish  # type: ignore[method-assign]
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        await bench.run_once(hanging)
    assert bench.broker.event_ids == ids + ids
    assert count(bench.url, PUBLISHED) == 1
    await hanging.close()


ODD_ATTRIBUTES = {
    "a huge number": '{"a": 1e131071}',
    "many digits": f'{{"a": {"9" * 5_000}}}',
    "no name": '{"": "x"}',
    "null": '{"a": null}',
    "an object": '{"a": {"b": "c"}}',
    "deep": '{"a": ' + "[" * 1_200 + "]" * 1_200 + "}",
}


@pytest.mark.parametrize("attributes", ODD_ATTRIBUTES.values(), ids=ODD_ATTRIBUTES)
async def test_attributes_that_nobody_can_read_stop_nobody(bench: Bench, attributes: str) -> None:
    """Whatever jsonb holds that no message can: the row is kept with its reason, and its neighbours go out."""
    bench.emit(1, 2, 3)
    with psycopg.connect(bench.url) as connection:
        connection.execute("update outbox_events set attributes = %s where aggregate_id = '2'", (attributes,))
    report = await bench.run_once()
    assert (report.updated, report.errors) == (2, 1)
    assert bench.query("select aggregate_id, last_error_code from outbox_events where failed_at is not null") == [
        ("2", "invalid_attributes")
    ]


async def test_an_attempt_count_at_its_end_stops_nobody(bench: Bench) -> None:
    """A counter that cannot grow is no reason to publish the neighbours again."""
    bench.emit(1, 2)
    bench.query("""update outbox_events set attributes = '{"goog": "x"}', attempt_count = 2147483647
                    where aggregate_id = '2' returning 1""")
    assert (await bench.run_once()).updated == 1
    assert count(bench.url, FAILED) == 1


async def test_the_row_remembers_the_topic_it_went_to(bench: Bench) -> None:
    """A default that changes later does not change what was published."""
    bench.emit(1)
    await bench.run_once()
    bench.emit(2)
    later = bench.publisher_on(bench.open_outbox(), routes=Routes("other-events"))
    await bench.run_once(later)
    await later.close()
    assert bench.query("select aggregate_id, topic from outbox_events order by id") == [
        ("1", TOPIC),
        ("2", "other-events"),
    ]


async def test_an_unusual_client_encoding_changes_nothing(bench: Bench) -> None:
    """Whatever the role's settings say, the relay reads UTF-8."""
    bench.emit(1, data={"price": "5 €"}, attributes={"city": "Zürich, 東京"}, aggregate_id="€")
    role, name = bench.query("select quote_ident(current_user), quote_ident(current_database())")[0]
    with psycopg.connect(bench.url) as connection:
        connection.execute(f"alter role {role} in database {name} set client_encoding = 'latin1'".encode())
    await bench.run_once()
    ((_, (message,)),) = bench.broker.requests
    assert message.attributes["city"] == "Zürich, 東京"
    assert json.loads(message.body)["data"] == {"price": "5 €"}


async def test_looks_read_what_is_committed_whatever_the_server_does_by_default(bench: Bench) -> None:
    """As a serializable transaction, a look could end the transaction of a service that changed what it reads."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    looker = await connect_async(bench.url)
    async with operating(looker, "public"):
        shown = await (await looker.execute("show transaction_isolation")).fetchone()
    await looker.close()
    assert shown == ("read committed",)
