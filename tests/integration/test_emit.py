"""Emitting: what a transaction stores, what it answers, what it refuses, and who waits for whom."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from google.pubsub_v1.types import PubsubMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import IsolationLevel
from psycopg import errors as pg
from psycopg.types.json import Jsonb

from relay import Actor, Event, InvalidEventError, emit, emit_async
from relay.dev.stack import Stack
from relay.envelope import RELAY_ATTRIBUTES, attributes_fault
from relay.outbox import schema
from relay.outbox.rows import Claimed
from relay.outbox.statements import statement
from relay.postgres.wire import Unread
from relay.publisher.message import message_of
from relay.testing.databases import fresh_database
from tests.support.outbox import count, event
from tests.support.waiting import until

Connection = psycopg.Connection[Any]

BARE: dict[str, Any] = {"event_type": "order.paid", "aggregate_type": "order", "aggregate_id": "7", "data": {}}
NIL = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """A connection to an empty outbox."""
    with psycopg.connect(database) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(stack: Stack, template: str) -> Iterator[Connection]:
    """One connection for tests that commit nothing."""
    with fresh_database(stack.database_url, template) as url, psycopg.connect(url) as opened:
        yield opened


def emit_raw(connection: Connection, events: Any) -> list[tuple[Any, ...]]:
    """Call the function as another language would."""
    return connection.execute("select * from outbox_emit(%s)", (Jsonb(events),)).fetchall()


def one(connection: Connection, query: str, *values: Any) -> Any:
    """The first column of the first row."""
    row = connection.execute(query.encode(), values).fetchone()
    assert row
    return row[0]


def payload(connection: Connection) -> Any:
    """The envelope of the last event."""
    return one(connection, "select payload from outbox_events order by id desc limit 1")


class TestWhatIsStored:
    """The row, the envelope in it, and the answer."""

    def test_the_row_says_what_the_event_said(self, shared: Connection) -> None:
        """Nothing is lost between the service and the table."""
        emitted = emit(
            shared,
            Event(
                event_type="order.paid",
                aggregate_type="order",
                aggregate_id="7",
                data={"total": "9.90", "ok": None},
                event_id=UUID("0190aaaa-0000-7000-8000-00000000ABCD"),
                version=3,
                occurred_at=datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))),
                actor=Actor(type="user", id="u1", role="admin"),
                topic="orders",
                ordering_key="order-7",
                dedup_key="paid-7",
                attributes={"tenant": "acme"},
            ),
        )

        columns = "event_id, event_type, aggregate_type, aggregate_id, topic, ordering_key, dedup_key, attributes"
        row = shared.execute(f"select {columns}, payload, id from outbox_events".encode()).fetchone()  # noqa: S608 -- a test's own words
        shared.rollback()
        assert row
        assert row[:8] == (
            emitted.event_id,
            *("order.paid", "order", "7", "orders", "order-7", "paid-7"),
            {"tenant": "acme"},
        )
        assert row[8] == {
            "event_id": "0190aaaa-0000-7000-8000-00000000abcd",
            "event_type": "order.paid",
            "version": 3,
            "occurred_at": "2023-12-31T23:30:00.000000Z",
            "actor": {"type": "user", "id": "u1", "role": "admin"},
            "data": {"total": "9.90", "ok": None},
        }
        assert row[9] == emitted.sequence
        assert emitted.inserted

    def test_what_is_left_out_has_its_default(self, shared: Connection) -> None:
        """Pending at once, by routing, first version, nobody's act, now."""
        shared.execute("set local timezone to 'Pacific/Auckland'")
        before = one(shared, "select clock_timestamp()")
        emit_raw(shared, [{**BARE, "version": None, "attributes": None, "actor": None, "available_at": None}])
        stored = payload(shared)
        defaults = one(
            shared,
            "select (topic, ordering_key, dedup_key, published_at, failed_at) is null and attributes = '{}'"
            " and available_at = '-infinity' and attempt_count = 0 and created_at >= %s from outbox_events",
            before,
        )
        shared.rollback()
        assert defaults is True
        assert stored["version"] == 1
        assert stored["actor"] is None
        assert before <= datetime.fromisoformat(stored["occurred_at"]) <= datetime.now(UTC) + timedelta(minutes=1)

    def test_a_scheduled_event_waits_until_its_moment(self, shared: Connection) -> None:
        """The offset counts, not the session's time zone."""
        shared.execute("set local timezone to 'America/New_York'")
        emit(shared, event(available_at=datetime(2031, 1, 1, 12, tzinfo=timezone(timedelta(hours=-5)))))
        assert one(shared, "select available_at from outbox_events") == datetime(2031, 1, 1, 17, tzinfo=UTC)
        shared.rollback()

    def test_event_ids_are_uuid7_in_the_order_of_time(self, shared: Connection) -> None:
        """Index pages of the newest ids are the only ones that are written."""
        before = one(shared, "select extract(epoch from clock_timestamp()) * 1000")
        ids = [emitted.event_id for emitted in emit(shared, [event(n) for n in range(500)])]
        after = one(shared, "select extract(epoch from clock_timestamp()) * 1000")
        shared.rollback()

        assert {(one_id.version, one_id.variant) for one_id in ids} == {(7, "specified in RFC 4122")}
        assert len(set(ids)) == 500
        moments = [one_id.int >> 64 for one_id in ids]
        assert moments == sorted(moments)
        assert moments[0] < moments[-1]
        assert int(before) <= moments[0] >> 16 <= moments[-1] >> 16 <= int(after)

    def test_ids_of_one_call_follow_each_other_and_those_of_another_are_elsewhere(self, shared: Connection) -> None:
        """Their last 62 bits count up from a number that is drawn at random for each call."""
        tails = [
            [each.event_id.int & (1 << 62) - 1 for each in emit(shared, [event(n) for n in range(3)])] for _ in "ab"
        ]
        shared.rollback()

        for first, second, third in tails:
            assert (second - first, third - second) == (1, 1)
        assert abs(tails[0][0] - tails[1][0]) > 1_000_000

    @pytest.mark.parametrize("tail", [-(1 << 61), -1, 0, (1 << 61) + 1_000_000])
    def test_a_uuid7_has_its_version_and_variant_with_any_tail(self, shared: Connection, tail: int) -> None:
        """Also with the greatest that is drawn, behind many events."""
        made = one(shared, "select outbox_uuid7(now(), %s::bigint)", tail)

        assert (made.version, made.variant) == (7, "specified in RFC 4122")
        assert made.int & (1 << 62) - 1 == tail % (1 << 62)

    @given(micros=st.integers(0, 999_999), second=st.integers(0, 4_000_000_000))
    @settings(max_examples=50, deadline=None)
    def test_a_uuid7_holds_its_moment_to_the_microsecond(self, shared: Connection, micros: int, second: int) -> None:
        """48 bits of milliseconds, then 12 bits of the fraction."""
        moment = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}.{micros:06}+00"
        made = one(shared, "select outbox_uuid7(%s)", moment)

        assert made.int >> 80 == second * 1_000 + micros // 1_000
        assert (made.int >> 64) & 0xFFF == micros % 1_000 * 4096 // 1_000

    def test_ten_thousand_events_keep_their_order_in_one_statement(self, shared: Connection) -> None:
        """Ids ascend with the array, and so do the answers."""
        events = [event(n, event_id=uuid4(), ordering_key=str(n % 7) if n % 2 else None) for n in range(10_000)]
        shared.execute("select 1")
        with tempfile.TemporaryFile("w+") as trace:
            shared.pgconn.trace(trace.fileno())
            emitted = emit(shared, events)
            shared.pgconn.untrace()
            trace.seek(0)
            executed = [line for line in trace if line.split("\t")[3:4] in (["Execute"], ["Query"])]
        stored = shared.execute("select id, event_id from outbox_events order by id").fetchall()
        shared.rollback()

        assert len(executed) == 1
        assert [answer.event_id for answer in emitted] == [sent.event_id for sent in events]
        assert [(answer.sequence, answer.event_id) for answer in emitted] == stored

    def test_any_iterable_of_events_is_many(self, shared: Connection) -> None:
        """A generator over what has changed is as good as a list, and is answered in its order."""
        events = [event(n, event_id=uuid4()) for n in range(3)]
        answers = [emit(shared, many) for many in (tuple(events[:1]), (one for one in events[1:]))]
        stored = shared.execute("select event_id from outbox_events order by id").fetchall()
        shared.rollback()
        assert [[answer.event_id for answer in several] for several in answers] == [
            [sent.event_id for sent in events[:1]],
            [sent.event_id for sent in events[1:]],
        ]
        assert stored == [(sent.event_id,) for sent in events]

    def test_an_iterable_that_breaks_off_stores_nothing(self, shared: Connection) -> None:
        """It is read to its end first, and its own error is the caller's."""

        def changes() -> Iterator[Event]:
            yield event()
            raise LookupError("no such order")

        with pytest.raises(LookupError, match="no such order"):
            emit(shared, changes())
        stored = one(shared, "select count(*) from outbox_events")
        shared.rollback()
        assert stored == 0

    def test_no_events_are_no_error(self, shared: Connection) -> None:
        """A loop that found nothing to announce needs no special case."""
        assert emit(shared, []) == []
        assert emit_raw(shared, []) == []
        shared.rollback()

    def test_a_rollback_leaves_nothing(self, connection: Connection, database: str) -> None:
        """Neither of the transaction nor of a savepoint in it."""
        emit(connection, event(1))
        connection.rollback()
        assert count(database) == 0

        emit(connection, event(2))
        with connection.transaction(force_rollback=True):
            emit(connection, event(3, ordering_key="k"))
        emit(connection, event(4))
        connection.commit()
        assert count(database) == 2
        assert count(database, "aggregate_id in ('2', '4')") == 2

    def test_null_inside_of_data_stays(self, shared: Connection) -> None:
        """JSON's null is a value; the limits of depth are Postgres' own."""
        nested: Any = None
        for _ in range(500):
            nested = [nested]
        for data in (None, [None], nested, "\\u0000", 10**1_000, -1.5e-7):
            emit(shared, event(data=data))
            assert payload(shared)["data"] == data
        shared.rollback()


def same(fields: dict[str, Any], words: str) -> tuple[dict[str, Any], str, str]:
    """Both sides say the same."""
    return fields, words, words


REFUSED = [
    same({"event_type": ""}, "event_type has 0 bytes, the limit is 1 to 255"),
    same({"event_type": "é" * 128}, "event_type has 256 bytes, the limit is 1 to 255"),
    same({"aggregate_type": "x" * 256}, "aggregate_type has 256 bytes, the limit is 1 to 255"),
    same({"aggregate_id": "x" * 1_025}, "aggregate_id has 1025 bytes, the limit is 1 to 1024"),
    same({"topic": "x" * 513}, "topic has 513 bytes, the limit is 1 to 512"),
    same({"ordering_key": "x" * 2_048}, "ordering_key has 2048 bytes, the limit is 1 to 1024"),
    same({"dedup_key": ""}, "dedup_key has 0 bytes, the limit is 1 to 1024"),
    same({"actor": {"type": "user"}}, "has no id"),
    same({"actor": {"type": "", "id": "7"}}, "type has 0 bytes, the limit is 1 to 255"),
    same({"actor": {"type": "user", "id": "x" * 1_025}}, "id has 1025 bytes, the limit is 1 to 1024"),
    same({"attributes": {str(n): "x" for n in range(95)}}, "has 95 attributes, the limit is 94"),
    same({"attributes": {"": "x"}}, "attribute '' has a name of 0 bytes, the limit is 1 to 256"),
    same({"attributes": {"x" * 257: "x"}}, "has a name of 257 bytes, the limit is 1 to 256"),
    same({"attributes": {"goog": "x"}}, "attribute 'goog': names that start with goog are the broker's"),
    *(same({"attributes": {name: "x"}}, f"attribute '{name}' is set by the relay itself") for name in RELAY_ATTRIBUTES),
    same({"attributes": {"tenant": "é" * 513}}, "attribute 'tenant' has a value of 1026 bytes, the limit is 1024"),
    same({"evnt_id": NIL}, "has the unknown field evnt_id"),
    same(
        {"ordering_key": "k", "available_at": "2030-01-01T00:00:00Z"},
        "has available_at and ordering_key, which exclude each other: a scheduled event would hold up its key",
    ),
    ({"event_type": 5}, "event_type is of type int, not a text", "event_type is of type number, not a text"),
    ({"event_type": None}, "event_type is of type NoneType, not a text", "has no event_type"),
    ({"actor": "me"}, "Actor: is of type str, not an object", "actor is of type string, not an object"),
    ({"attributes": ["x"]}, "attributes is of type list, not an object", "attributes is of type array, not an object"),
    (
        {"attributes": {"tenant": 5}},
        "attributes.tenant is of type int, not a text",
        "attribute 'tenant' is of type number, not a text",
    ),
    ({"event_id": NIL}, "event_id is the nil UUID", f"event_id {NIL} is not a UUID, or is the nil UUID"),
    ({"event_id": "7"}, "event_id '7': ", "event_id 7 is not a UUID, or is the nil UUID"),
    ({"version": 0}, "version 0: ", "version 0 is not a whole number from 1 to 999999999"),
    ({"version": 10**9}, "version 1000000000: ", "version 1000000000 is not a whole number"),
    ({"version": 1.5}, "version 1.5: ", "version 1.5 is not a whole number"),
    ({"occurred_at": "yesterday"}, "occurred_at 'yesterday': ", "occurred_at yesterday is not an RFC 3339 time"),
    *(
        ({field: moment}, f"{field} ", f"{field} {moment} is not an RFC 3339 time with its offset")
        for field in ("occurred_at", "available_at")
        for moment in (
            "2024-01-01T00:00:00",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T25:00:00Z",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "infinity",
        )
    ),
]
ACCEPTED: list[dict[str, Any]] = [
    {"event_type": "é" * 127 + "x", "aggregate_type": "x" * 255, "aggregate_id": "x" * 1_024},
    {"topic": f"projects/{'p' * 240}/topics/{'x' * 255}", "dedup_key": "x" * 1_024, "ordering_key": "x" * 1_024},
    {"attributes": {f"{n:0>256}": "x" * 1_024 for n in range(94)}},
    {"attributes": {"Goog": "", "event_idx": "x"}},
    {"version": 999_999_999, "actor": {"type": "x" * 255, "id": "x" * 1_024, "more": [1]}},
    {"event_id": "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"},
    {"occurred_at": "2024-02-29 23:59:59.123456-11:30", "available_at": "9999-12-31T23:59:59.999999Z"},
    {"occurred_at": "0001-01-01T00:00:00Z"},
]
SQL_ALONE: list[tuple[Any, str]] = [
    ({**BARE, "order_lock": "no"}, "order_lock is of type string, not true or false"),
    ({**BARE, "event_id": 7}, "event_id 7 is not a UUID"),
    ({**BARE, "version": "1"}, "version 1 is not a whole number"),
    ({**BARE, "occurred_at": 1_700_000_000}, "occurred_at 1700000000 is not an RFC 3339 time"),
    ({**BARE, "occurred_at": "2024-01-01T00:00:00+16:00"}, "is not an RFC 3339 time with its offset"),
    ({**BARE, "occurred_at": "٢٠٢٤-01-01T00:00:00Z"}, "is not an RFC 3339 time with its offset"),
    ({name: BARE[name] for name in ("event_type", "aggregate_type", "aggregate_id")}, "has no data"),
    ({name: BARE[name] for name in ("event_type", "aggregate_type", "data")}, "has no aggregate_id"),
    ("text", "is of type string, not an object"),
    (None, "is of type null, not an object"),
    ([], "is of type array, not an object"),
]


class TestWhatIsRefused:
    """Before the broker would have to, in words, with nothing stored."""

    @pytest.mark.parametrize(("fields", "in_python", "in_sql"), REFUSED)
    def test_python_and_sql_refuse_the_same(
        self, shared: Connection, fields: dict[str, Any], in_python: str, in_sql: str
    ) -> None:
        """Services in other languages live by the same limits, and read the same sentence after `event 1`."""
        with pytest.raises(InvalidEventError) as refused:
            Event(**{**BARE, **fields})
        assert in_python in str(refused.value)

        with pytest.raises(pg.InvalidParameterValue) as answered:
            emit_raw(shared, [BARE, {**BARE, **fields}])
        shared.rollback()
        assert answered.value.diag.message_primary
        assert answered.value.diag.message_primary.startswith("outbox_emit: event 1 ")
        assert in_sql in answered.value.diag.message_primary

    @pytest.mark.parametrize("fields", ACCEPTED)
    def test_python_and_sql_accept_the_same(self, shared: Connection, fields: dict[str, Any]) -> None:
        """A value at its limit is within it; both roads write the same row."""
        columns = (
            "event_type, topic, ordering_key, attributes, available_at::text, payload - 'event_id' - 'occurred_at'"
        )
        rows = []
        for store in (
            lambda: emit(shared, Event(**{**BARE, **fields})),
            lambda: emit_raw(shared, [{**BARE, **fields}]),
        ):
            store()
            rows.append(shared.execute(f"select {columns} from outbox_events".encode()).fetchall())  # noqa: S608 -- a test's own words
            shared.rollback()
        assert rows[0] == rows[1]

    @pytest.mark.parametrize(
        ("events", "words"),
        [
            (BARE, "expected an Event or an iterable of Events, not dict"),
            ({}, "not dict"),
            ("", "not str"),
            (b"[]", "not bytes"),
            (None, "not NoneType"),
            (Event, "not ModelMetaclass"),
            ([event(), None], "event 1 is of type NoneType, not an Event"),
            (iter([event(), BARE]), "event 1 is of type dict, not an Event"),
            ([[event()]], "event 0 is of type list, not an Event"),
        ],
        ids=lambda value: None if isinstance(value, str) else type(value).__name__,
    )
    def test_what_is_no_event_is_a_type_error(
        self, connection: Connection, database: str, events: Any, words: str
    ) -> None:
        """A mistake in the program and not in its data; nothing is sent, and the transaction goes on."""
        emit(connection, event())
        with pytest.raises(TypeError) as refused:
            emit(connection, events)
        connection.commit()

        assert words in str(refused.value)
        assert "order.paid" not in str(refused.value)
        assert count(database) == 1

    async def test_the_asynchronous_face_refuses_what_is_no_event_too(self, database: str) -> None:
        """An asynchronous generator included: it is the caller who awaits."""

        async def changes() -> AsyncIterator[Event]:
            yield event()

        async with await psycopg.AsyncConnection.connect(database) as connection:
            for events, kind in ((changes(), "async_generator"), (BARE, "dict")):
                with pytest.raises(TypeError, match=f"iterable of Events, not {kind}"):
                    await emit_async(connection, events)  # type: ignore[arg-type]  # what is refused
        assert count(database) == 0

    @pytest.mark.parametrize(("item", "words"), SQL_ALONE)
    def test_sql_refuses_what_python_has_no_word_for(self, shared: Connection, item: Any, words: str) -> None:
        """The function is called by hand as well."""
        with pytest.raises(pg.InvalidParameterValue, match="outbox_emit: event 0 ") as refused:
            emit_raw(shared, [item])
        shared.rollback()
        assert words in str(refused.value)

    @pytest.mark.parametrize(
        ("argument", "kind"),
        [("'{}'", "object"), ("'null'", "null"), ("null", "null"), ("'5'", "number"), ("'\"[]\"'", "string")],
    )
    def test_it_takes_an_array(self, shared: Connection, argument: str, kind: str) -> None:
        """One event on its own is a mistake that must not pass as none."""
        with pytest.raises(pg.InvalidParameterValue, match=f"outbox_emit: takes an array of events, not {kind}"):
            shared.execute(f"select outbox_emit({argument})".encode())
        shared.rollback()

    def test_a_refusal_of_the_database_is_the_same_error(self, connection: Connection, database: str) -> None:
        """An event that went past its own checks; nothing of its batch is stored."""
        unchecked = Event.model_construct(**{**BARE, "event_type": ""})
        with pytest.raises(InvalidEventError, match="outbox_emit: event 1 event_type has 0 bytes") as refused:
            emit(connection, [event(), unchecked])
        connection.commit()
        assert refused.value.position == 1
        assert count(database) == 0

    async def test_the_place_of_an_event_whose_id_is_taken_is_known(self, database: str) -> None:
        """Although the database tells its id alone; of one that comes twice, the second is refused."""
        twice = uuid4()
        for ids, position in (([None, twice, twice], 2), ([twice], 0)):
            async with await psycopg.AsyncConnection.connect(database) as connection:
                await emit_async(connection, event(event_id=uuid4()))
                if len(ids) == 1:
                    await emit_async(connection, event(event_id=twice))
                with pytest.raises(InvalidEventError, match=f"the event {twice} is in the outbox already") as refused:
                    await emit_async(connection, [event(event_id=one) for one in ids])
                assert refused.value.position == position
                await connection.rollback()

    def test_a_message_of_eleven_megabytes_is_refused(self, shared: Connection) -> None:
        """The broker would refuse it for ever; the business transaction hears of it in time."""
        with pytest.raises(InvalidEventError, match=r"has a message of 110\d{5} bytes, the limit is 9500000"):
            emit(shared, event(data="x" * 11_000_000))
        shared.rollback()
        assert emit(shared, event(data="x" * 9_499_000)).inserted
        shared.rollback()

    def test_data_that_grows_in_the_database_is_measured_there(self, shared: Connection) -> None:
        """Postgres writes 1e300 with all its zeros."""
        with pytest.raises(InvalidEventError, match="the limit is 9500000"):
            emit(shared, event(data=[1e300] * 32_000))
        shared.rollback()

    def test_data_nested_too_deeply_for_postgres_is_refused(self, shared: Connection) -> None:
        """Its stack is smaller than Python's."""
        shared.execute("set local max_stack_depth to '100kB'")
        nested: Any = None
        for _ in range(900):
            nested = [nested]
        with pytest.raises(InvalidEventError, match="nested deeper than Postgres can read"):
            emit(shared, event(data=nested))
        shared.rollback()

    def test_an_event_id_is_taken_once(self, shared: Connection) -> None:
        """The same event twice is a mistake, unless its dedup_key says that it may be."""
        once = event(event_id=uuid4())
        for again in ([once, once], once):
            if again is once:
                emit(shared, once)
            with pytest.raises(InvalidEventError, match=f"the event {once.event_id} is in the outbox already"):
                emit(shared, again)
            shared.rollback()

    def test_a_nul_from_another_language_is_refused_on_the_way_in(self, shared: Connection) -> None:
        """The function never sees it: no jsonb can hold it."""
        with pytest.raises(pg.UntranslatableCharacter):
            emit_raw(shared, [{**BARE, "data": "a\0b"}])
        shared.rollback()


class TestDedupKey:
    """Emit unless it exists."""

    def test_an_existing_key_answers_with_the_event_that_has_it(self, shared: Connection) -> None:
        """In a statement of its own, in the same array, and with the same event_id."""
        first = emit(shared, event(dedup_key="a"))
        again, fresh, twice = emit(shared, [event(dedup_key="a"), event(dedup_key="b"), event(dedup_key="b")])
        fixed = event(dedup_key="c", event_id=uuid4())
        stored, repeated = emit(shared, [fixed, fixed])
        later = emit(shared, fixed)
        rows = one(shared, "select count(*) from outbox_events")
        shared.rollback()

        assert first.inserted
        assert not again.inserted
        assert (again.event_id, again.sequence) == (first.event_id, first.sequence)
        assert (fresh.inserted, twice.inserted) == (True, False)
        assert (twice.event_id, twice.sequence) == (fresh.event_id, fresh.sequence)
        assert [answer.inserted for answer in (stored, repeated, later)] == [True, False, False]
        assert {answer.sequence for answer in (stored, repeated, later)} == {stored.sequence}
        assert rows == 3

    def test_sixteen_at_once_store_one(self, database: str) -> None:
        """One of them is told that it inserted, all are told what."""
        together = threading.Barrier(16)

        def race(_: int) -> Any:
            with psycopg.connect(database) as connection:
                together.wait()
                return emit(connection, event(dedup_key="same"))

        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(race, range(16)))

        assert count(database) == 1
        assert sorted(answer.inserted for answer in answers) == [False] * 15 + [True]
        assert len({(answer.event_id, answer.sequence) for answer in answers}) == 1

    def test_one_event_emitted_by_many_at_once_is_stored_once(self, database: str) -> None:
        """The same event_id and dedup_key from many writers: each gets an answer, whichever key they meet at."""
        for same in [event(event_id=uuid4(), dedup_key=str(uuid4())) for _ in range(20)]:

            def store(writer: int, same: Event = same) -> Any:
                with psycopg.connect(database, application_name=f"writer {writer}") as writing:
                    return emit(writing, same)

            with ThreadPoolExecutor(4) as threads:
                answers = list(threads.map(store, range(4)))
            assert sum(answer.inserted for answer in answers) == 1
            assert {answer.event_id for answer in answers} == {same.event_id}

    @pytest.mark.parametrize("kept", [True, False])
    def test_the_second_waits_for_the_fate_of_the_first(self, database: str, *, kept: bool) -> None:
        """A key is taken by a commit, not by a transaction that may still roll back."""
        with psycopg.connect(database) as first, psycopg.connect(database) as second, ThreadPoolExecutor(1) as thread:
            taken = emit(first, event(dedup_key="k"))
            waiting = thread.submit(emit, second, event(dedup_key="k"))
            until(lambda: waits(database, second, "transactionid"), "the second emit waits")
            if kept:
                first.commit()
            else:
                first.rollback()
            answer = waiting.result()
        assert answer.inserted is not kept
        assert (answer.event_id == taken.event_id) is kept
        assert count(database) == 1

    def test_a_repeatable_read_that_began_before_has_to_run_again(self, database: str) -> None:
        """It cannot see the event that took the key, and must not pretend that there is none."""
        with psycopg.connect(database) as early, psycopg.connect(database) as other:
            early.isolation_level = IsolationLevel.REPEATABLE_READ
            early.execute("select 1")
            taken = emit(other, event(dedup_key="k"))
            other.commit()
            with pytest.raises(pg.SerializationFailure):
                emit(early, event(dedup_key="k"))
            early.rollback()
            assert emit(early, event(dedup_key="k")).event_id == taken.event_id

    def test_an_event_that_goes_meanwhile_has_the_transaction_run_again(self, database: str) -> None:
        """Its key was taken when the insert looked, and its id cannot be told any more."""
        with (
            psycopg.connect(database) as retention,
            psycopg.connect(database) as other,
            psycopg.connect(database) as emitting,
            ThreadPoolExecutor(1) as thread,
        ):
            emit(retention, event(dedup_key="old"))
            retention.commit()
            emit(other, event(dedup_key="held"))
            waiting = thread.submit(emit, emitting, [event(dedup_key="old"), event(dedup_key="held")])
            until(lambda: waits(database, emitting, "transactionid"), "the emit waits for the second key")
            retention.execute("delete from outbox_events where dedup_key = 'old'")
            retention.commit()
            other.commit()
            with pytest.raises(pg.SerializationFailure, match="dedup_key old was removed meanwhile"):
                waiting.result()


def waits(url: str, waiting: Connection, kind: str = "advisory") -> bool:
    """Whether the session waits for a lock of that kind."""
    with psycopg.connect(url) as looking:
        return bool(
            looking.execute(
                "select 1 from pg_locks where pid = %s and locktype = %s and not granted",
                (waiting.info.backend_pid, kind),
            ).fetchone()
        )


def buckets(connection: Connection) -> list[int]:
    """The ordering buckets that the session holds."""
    held = connection.execute(
        "select objid::bigint from pg_locks"
        " where pid = pg_backend_pid() and locktype = 'advisory' and granted order by 1"
    )
    return [row[0] for row in held]


def keys_by_bucket(connection: Connection, number: int) -> list[str]:
    """That many keys of different buckets, in the order of their buckets."""
    found: dict[int, str] = {}
    for n in range(100):
        found.setdefault(one(connection, "select hashtext(%s) & 1023", f"key-{n}"), f"key-{n}")
    return [found[bucket] for bucket in sorted(found)][:number]


class TestOrder:
    """Within a key, ids ascend in the order of the commits."""

    def test_the_second_of_a_key_waits_for_the_commit_of_the_first(self, database: str) -> None:
        """It has its xid by then, and draws its id only afterwards."""
        with psycopg.connect(database) as first, psycopg.connect(database) as second, ThreadPoolExecutor(1) as thread:
            emit(first, event(ordering_key="k"))
            waiting = thread.submit(emit, second, event(ordering_key="k"))
            until(lambda: waits(database, second), "the second emit waits for the key")
            with psycopg.connect(database) as looking:
                has_xid = looking.execute(
                    "select 1 from pg_locks where pid = %s and locktype = 'transactionid' and granted",
                    (second.info.backend_pid,),
                ).fetchone()
            last_of_first = emit(first, event(ordering_key="k"))
            assert not waiting.done()
            first.commit()
            assert waiting.result().sequence > last_of_first.sequence
            assert has_xid

    @pytest.mark.parametrize("fields", [{}, {"dedup_key": "d"}, {"ordering_key": "k"}], ids=str)
    def test_every_event_draws_its_id_with_an_xid(self, database: str, fields: dict[str, Any]) -> None:
        """The floors of the relay rest on it. Where the table is locked, an insert waits before it draws an id."""
        # A connection that is closed ends what waits in the thread, also where an assertion fails.
        with ThreadPoolExecutor(1) as thread, psycopg.connect(database) as service, psycopg.connect(database) as holder:
            holder.execute("lock table outbox_events in exclusive mode")
            waiting = thread.submit(emit, service, event(**fields))
            until(lambda: waits(database, service, "relation"), "the insert waits for the table")
            has_xid = holder.execute(
                "select 1 from pg_locks where pid = %s and locktype = 'transactionid' and granted",
                (service.info.backend_pid,),
            ).fetchone()
            drawn = holder.execute("select last_value, is_called from outbox_events_id_seq").fetchone()
            holder.rollback()
            assert waiting.result().inserted
        assert has_xid
        assert drawn == (1, False)

    def test_other_keys_do_not_wait(self, database: str) -> None:
        """Nor does an event without a key, nor a caller who orders by other means."""
        with psycopg.connect(database) as first, psycopg.connect(database) as second:
            mine, other = keys_by_bucket(first, 2)
            emit(first, event(ordering_key=mine))
            second.execute("set lock_timeout to '1ms'")
            emit(second, [event(ordering_key=other), event()])
            emit(second, event(ordering_key=mine), order_lock=False)
            second.commit()
            with pytest.raises(pg.LockNotAvailable):
                emit(second, event(ordering_key=mine))

    @pytest.mark.parametrize("backwards", [False, True])
    def test_a_bulk_takes_its_keys_in_one_order(self, database: str, *, backwards: bool) -> None:
        """Whatever the array's order: two bulks with crossing keys never wait for each other in a circle."""
        with (
            psycopg.connect(database) as holder,
            psycopg.connect(database) as bulk,
            ThreadPoolExecutor(1) as thread,
        ):
            low, middle, high = keys_by_bucket(holder, 3)
            emit(holder, event(ordering_key=middle))
            keys = [high, middle, low] if backwards else [low, middle, high]
            waiting = thread.submit(emit, bulk, [event(ordering_key=key) for key in keys])
            until(lambda: waits(database, bulk), "the bulk waits for the key in the middle")
            holder.execute("set local lock_timeout to '1ms'")
            emit(holder, event(ordering_key=high))
            holder.commit()
            assert [answer.inserted for answer in waiting.result()] == [True] * 3
            assert len(buckets(bulk)) == 3

    def test_ten_thousand_keys_take_at_most_1024_locks(self, shared: Connection) -> None:
        """One lock a key would exhaust the shared memory of the server."""
        emit(shared, [event(n, ordering_key=f"key-{n}") for n in range(10_000)])
        held = buckets(shared)
        shared.rollback()
        assert len(held) <= 1_024
        assert set(held) <= set(range(1_024))


class TestSessions:
    """Settings of the session, and what loads with emit."""

    def test_the_search_path_of_the_caller_does_not_lead_astray(self, shared: Connection) -> None:
        """A temporary table or function of the same name catches nothing."""
        shared.execute("create temporary table outbox_events (like outbox_events) on commit drop")
        shared.execute("set local search_path to pg_temp, public")
        emit(shared, event(ordering_key="k", attributes={"a": "b"}, actor={"type": "a", "id": "b"}))
        assert one(shared, "select count(*) from public.outbox_events") == 1
        shared.rollback()

    def test_the_settings_of_the_session_change_nothing(self, bare_database: str) -> None:
        """Not those of an application from another century either."""
        moment = "2024-02-03T04:05:06.789012+01:00"
        with psycopg.connect(bare_database) as connection:
            schema.migrate(connection, "public", schema.newest())
            connection.execute(
                "set datestyle to 'German, DMY'; set intervalstyle to 'sql_standard'; set timezone to 'Asia/Kolkata';"
                " set bytea_output to 'escape'; set standard_conforming_strings to off; set extra_float_digits to -15;"
                " set default_transaction_isolation to 'serializable'"
            )
            emit_raw(connection, [{**BARE, "occurred_at": moment, "attributes": {"back\\slash": "'"}}])
            stored = payload(connection)
        assert datetime.fromisoformat(stored["occurred_at"]) == datetime.fromisoformat(moment)
        assert stored["occurred_at"] == "2024-02-03T03:05:06.789012Z"
        assert UUID(stored["event_id"]).version == 7

    def test_importing_relay_loads_nothing_of_the_publishing_side(self) -> None:
        """A service that only emits starts as fast as before, and needs none of those packages."""
        web = ("http.server", "uvicorn", "aiohttp", "starlette", "h11", "prometheus_client")
        drivers = ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django")
        heavy = ("grpc", "google", "pydantic_settings", "redis", "opentelemetry", *web, *drivers)
        script = f"import sys, relay; print([name for name in {heavy!r} if name in sys.modules])"
        answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == "[]"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)


class TestSize:
    """What a claim counts on."""

    @given(
        data=st.recursive(st.none() | st.floats(allow_nan=False, allow_infinity=False) | TEXT, st.lists, max_leaves=5),
        names=st.lists(TEXT, min_size=4, max_size=4),
        own=st.dictionaries(TEXT.filter(lambda name: not attributes_fault({name: ""})), TEXT | st.just("é" * 512)),
        ordered=st.booleans(),
    )
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_no_message_is_larger_than_its_row_says(
        self, shared: Connection, data: Any, names: list[str], own: dict[str, str], *, ordered: bool
    ) -> None:
        """And the relay's own measure, which it cuts requests by, never refuses what emit accepted."""
        emit(
            shared,
            Event(event_type=names[0], aggregate_type=names[1], aggregate_id=names[2], data=data, attributes=own),
        )
        with shared.cursor() as cursor:
            cursor.adapters.register_loader("jsonb", Unread)
            limits = {"rows": 1, "small": 10**8, "floor": 0, "open_topics": [], "open_types": []}
            (columns,) = cursor.execute(statement("claim_fresh"), limits).fetchall()
        shared.rollback()
        row = Claimed(*columns)

        key = names[3] if ordered else ""
        message = message_of(row)
        wire = PubsubMessage.pb()(data=message.body, attributes=message.attributes, ordering_key=key)

        assert json.loads(message.body, parse_int=float)["data"] == data
        assert wire.ByteSize() <= row.size_bytes + len(key.encode())
        assert wire.ByteSize() <= message.size_bytes + len(key.encode())
        assert message.size_bytes <= row.size_bytes

    def test_the_ordering_key_is_part_of_the_size(self, shared: Connection) -> None:
        """It travels with the message."""
        emit(shared, [event(ordering_key=None), event(ordering_key="é" * 512)])
        small, large = (row[0] for row in shared.execute("select size_bytes from outbox_events order by id"))
        shared.rollback()
        assert large - small == 1_024

    def test_the_widest_event_fits_what_its_row_says(self, shared: Connection) -> None:
        """Every attribute, name and value at its limit."""
        widest = event(
            event_type="t" * 255,
            aggregate_type="é" * 127,
            aggregate_id='"' * 1_024,
            attributes={f"{n:é>128}": '"' * 1_024 for n in range(94)},
            ordering_key="k" * 1_024,
        )
        emitted = emit(shared, widest)
        row = shared.execute("select payload::text, size_bytes from outbox_events").fetchone()
        shared.rollback()
        assert row
        own = {
            "event_id": str(emitted.event_id),
            "event_type": widest.event_type,
            "aggregate_type": widest.aggregate_type,
            "aggregate_id": widest.aggregate_id,
            "created_at": "2024-01-01T00:00:00.000000Z",
            "sequence": "9223372036854775807",
        }
        wire = PubsubMessage.pb()(
            data=row[0].encode(), attributes=own | widest.attributes, ordering_key=widest.ordering_key
        )
        assert wire.ByteSize() <= row[1]
