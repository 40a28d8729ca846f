"""The shadow of a take-over: it finds what would be in the way, shows no value, and changes nothing."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import emit
from relay.adopt.comparison import Comparison, begun
from relay.adopt.judging import PAGE
from relay.adopt.watching import Watch, watch
from relay.adopt.words import lines
from relay.errors import ConfigurationError
from relay.postgres.connect import connect
from tests.support import old_outboxes as old
from tests.support.outbox import event

READER, PASSWORD = "adopt_reader", "only-in-this-test"
SECRET = "4711-secret"  # noqa: S105 -- a value that must not be shown


def said(comparison: Comparison) -> str:
    """All that is printed or logged of it."""
    return "\n".join(lines(comparison)) + json.dumps(comparison.as_json())


def insert(url: str, **values: str) -> None:
    """One more row, of SQL."""
    given = {"kind": "'order.paid'", "order_id": "1", "payload": "'{}'", **values}
    old.run(url, f"insert into shop.events ({', '.join(given)}) values ({', '.join(given.values())})")  # noqa: S608 -- a test's own words


def portrait(url: str) -> tuple[Any, ...]:
    """Whole tables, the catalogue, and how many rows were ever written."""
    return tuple(
        old.rows_of(url, query)
        for query in (
            "select md5(string_agg(e::text || xmin::text || ctid::text, '' order by id)) from shop.events e",
            "select md5(string_agg(e::text || xmin::text || ctid::text, '' order by id)) from outbox_events e",
            "select count(*), max(oid) from pg_class",
            "select count(*), max(oid) from pg_proc",
            "select count(*) from pg_trigger",
        )
    )


def test_a_row_that_can_be_taken_is_counted(database: str) -> None:
    """Over more than one page; of those that are sent, the newest."""
    old.home_made(database, rows=PAGE + 120, sent=100)
    found = old.shadow(database, sent=40)
    assert (found.pending, found.sent, found.taken, found.known, found.clean) == (PAGE + 20, 40, PAGE + 20, 0, True)
    assert found.oldest is not None
    assert "a take-over would take every row" in said(found)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"kind": "null"}, "has no event_type"),
        ({"kind": "''"}, "event_type has a number of bytes that is not allowed, the limit is 1 to 255"),
        ({"payload": "null"}, "has no data"),
        ({"uuid": "'00000000-0000-0000-0000-000000000000'"}, "event_id  is not a UUID, or is the nil UUID"),
        ({"created_at": "'infinity'"}, "occurred_at  is not an RFC 3339 time with its offset"),
        ({"headers": f'\'{{"goog{SECRET}": "a"}}\''}, "an attribute: names that start with goog are the broker's"),
        ({"headers": f'\'{{"a": ["{SECRET}"]}}\''}, "an attribute is of type array, not a text"),
        ({"payload": "to_jsonb(repeat('x', 9600000))"}, "makes a message of more than 9500000 bytes"),
    ],
)
def test_a_row_that_is_no_event_is_named_by_its_id(database: str, values: dict[str, str], reason: str) -> None:
    """With the reason that outbox_emit would have, less the row's values."""
    old.home_made(database, rows=3)
    insert(database, **values)
    found = old.shadow(database)
    reasons = {" ".join(each.split()): ids.first for each, ids in found.refused.items()}
    assert reasons == {" ".join(reason.split()): ["4"]}
    assert (found.taken, found.wrong.rows, found.clean) == (3, 1, False)
    assert SECRET not in said(found)


@pytest.mark.slow("a large table, twice")
def test_what_the_shadow_would_take_is_what_the_table_takes(database: str) -> None:
    """At the limit of a message's size, to the byte."""
    old.home_made(database)
    for size in (9_498_000, 9_499_150, 9_499_200, 9_499_250, 9_499_300, 9_499_999):
        insert(database, payload=f"to_jsonb(repeat('x', {size}))")
    refused = {name for found in old.shadow(database).refused.values() for name in found.first}
    taken = set()
    for (row,) in old.rows_of(database, "select id from shop.events order by id"):
        with psycopg.connect(database) as connection:
            session = old.opened(connection)
            try:
                with session.transaction():
                    connection.execute(session.queries.emit(), session.queries.values([(str(row),)]))
                taken.add(str(row))
            except psycopg.errors.InvalidParameterValue:
                continue
    assert refused
    assert taken
    assert refused | taken == {str(number) for number in range(1, 7)}
    assert not refused & taken


def test_rows_whose_mapping_fails_are_found_among_thousands(database: str) -> None:
    """Text that is no JSON, in the middle of a page and at the end of another one."""
    old.run(
        database,
        """
        create schema shop;
        create table shop.events (id bigint primary key, payload text not null, sent_at timestamptz);
        insert into shop.events (id, payload)
        select n, case when n in (7, 800, 1200) then '{"n": ' || n || ', 4711-secret' else '{"n": 1}' end
          from generate_series(1, 1200) as n""",
    )
    fields = dict.fromkeys(old.FIELDS) | {
        "event_type": "'a.b'",
        "aggregate_type": "'a'",
        "aggregate_id": "id",
        "data": "payload::jsonb",
    }
    found = old.shadow(database, old.words(fields=fields))
    ((reason, ids),) = found.refused.items()
    assert (ids.rows, ids.first, found.taken) == (3, ["7", "800", "1200"], 1197)
    assert "22P02" in reason
    assert SECRET not in said(found)


def test_a_service_that_writes_both_is_compared_field_by_field(database: str) -> None:
    """By its event_id; differences are told by field and row, without values."""
    old.home_made(database, rows=9)
    rows = old.rows_of(database, "select id, uuid, order_id, payload, headers, created_at from shop.events order by id")
    fields: list[dict[str, Any]] = [
        {
            "event_id": uuid,
            "aggregate_id": str(order),
            "ordering_key": f"order-{order}",
            "data": payload,
            "attributes": {**(headers or {}), "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            "occurred_at": created,
        }
        for _, uuid, order, payload, headers, created in rows
    ]
    changes: list[dict[str, Any]] = [
        {},
        {"data": {"n": SECRET}},
        {"event_type": f"order.{SECRET}"},
        {"aggregate_type": "other"},
        {"ordering_key": None},
        {"actor": {"type": "user", "id": SECRET}},
        {"attributes": {"tenant": SECRET}},
        {"occurred_at": "2001-01-01T00:00:00Z"},
        {"version": 2, "topic": "elsewhere", "aggregate_id": "other"},
    ]
    with psycopg.connect(database) as connection:
        emit(connection, [event(**{**field, **change}) for field, change in zip(fields, changes, strict=True)])
    found = old.shadow(database)
    assert {name: ids.first for name, ids in found.different.items()} == {
        "data": ["2"],
        "event_type": ["3"],
        "aggregate_type": ["4"],
        "ordering_key": ["5"],
        "actor": ["6"],
        "attributes": ["7"],
        "occurred_at": ["8"],
        "aggregate_id": ["9"],
        "version": ["9"],
        "topic": ["9"],
    }
    assert (found.known, found.taken, found.wrong.rows, found.clean) == (1, 0, 8, False)
    assert SECRET not in said(found)


def test_an_event_is_also_known_by_its_dedup_key(database: str) -> None:
    """One that was emitted with another event_id is different in that."""
    old.home_made(database, rows=1)
    with psycopg.connect(database) as connection:
        emit(connection, event(1, event_type="order.paid", dedup_key="k", data={"n": 1}, ordering_key="order-1"))
    found = old.shadow(database, old.words(fields={"dedup_key": "'k'", "occurred_at": None}))
    assert {name: ids.first for name, ids in found.different.items()} == {"event_id": ["1"]}
    without = {"dedup_key": "'k'", "occurred_at": None, "event_id": None}
    assert old.shadow(database, old.words(fields=without)).known == 1


def test_events_that_are_there_twice_are_refused(database: str) -> None:
    """An event_id is one event; a dedup_key makes one of several, and is told."""
    old.home_made(database, rows=5)
    old.run(database, "update shop.events set uuid = (select uuid from shop.events where id = 1) where id in (3, 4)")
    found = old.shadow(database, old.words(fields={"dedup_key": "case when id > 3 then 'same' end"}))
    assert (found.repeated.rows, found.repeated.first, found.clean) == (2, ["3", "4"], False)
    assert (found.merged.rows, found.merged.first) == (1, ["5"])


def test_rows_of_a_key_that_occurred_in_another_order_are_told(database: str) -> None:
    """The id has the order; what it means is the operator's to judge, and nothing is refused."""
    old.home_made(database, rows=30)
    old.run(database, "update shop.events set created_at = created_at - interval '1 hour' where id = 15")
    found = old.shadow(database)
    assert (found.disordered.rows, found.disordered.first, found.clean) == (1, ["15"], True)


def test_a_mark_that_ends_nothing_is_found_before_anything_is_taken(database: str) -> None:
    """Also one that a constraint or a type of the table would refuse."""
    old.home_made(database, rows=1)
    for marks in (["headers = '{}'"], ["sent_at = null"]):
        found = old.shadow(database, old.words(marks=marks))
        assert "taken again and again" in (found.mark_fails or "")
        assert not found.clean
    failing = old.shadow(
        database, old.words(marks=["order_id = (payload ->> 'none' || 'x')::bigint", "sent_at = now()"])
    )
    assert failing.clean, "null is a number"
    failing = old.shadow(database, old.words(marks=["order_id = (payload ->> 'n' || 'x')::bigint", "sent_at = now()"]))
    assert "22P02" in (failing.mark_fails or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table": "shop.orders"}, "has no table 'shop.orders'"),
        ({"table": "shop.events; drop table shop.events"}, "has no table"),
        ({"table": "shop.recent"}, "is no table"),
        ({"table": "public.outbox_events"}, "is the outbox itself"),
        ({"ids": ["nr"]}, "--id names 'nr', which shop.events has not; its columns are id, uuid"),
        ({"ids": ["order_id"]}, "does not tell the rows of shop.events apart"),
        ({"ids": ["sent_at"]}, "may be null"),
        ({"marks": ["sent=now()"]}, "--mark names 'sent'"),
        ({"marks": ["sent_at='x' || order_id"]}, "--mark sent_at: column"),
        ({"marks": ["sent_at=now() where true --"]}, "--mark sent_at: syntax error"),
        ({"marks": ["id=7"]}, "--mark id: column"),
        ({"pending": "order_id"}, "--pending is not a condition"),
        ({"pending": "nothing is null"}, '--pending: column "nothing" does not exist'),
        ({"pending": "sent_at is null) and (true"}, None),
        ({"pending": "true; delete from shop.events"}, "--pending: "),
        (
            {"fields": {"data": "payload::text"}},
            'is of type text, not jsonb; convert it, like --map "data=payload::jsonb"',
        ),
        ({"fields": {"occurred_at": "created_at::timestamp"}}, "is of type timestamp, not timestamptz"),
        ({"fields": {"version": "'1'"}}, "is of type text, not int4"),
        ({"fields": {"event_id": "order_id"}}, "is of type int8, not uuid"),
        ({"fields": {"topic": "kind, kind"}}, "--map topic: "),
        ({"fields": {"aggregate_type": "shipment"}}, "a text in single quotes"),
        ({"fields": {"aggregate_type": "order"}}, "a text in single quotes"),
        ({"fields": {"aggregate_type": "named(kind)"}}, "names are looked up in the outbox's schema"),
        ({"fields": {"topic": "kind), (kind"}}, "--map topic: "),
        ({"fields": {"topic": "kind)), ((kind"}}, "--map topic: "),
        ({"fields": {"topic": "1)) union select ((2"}}, "--map topic: "),
        ({"fields": {"topic": "kind)) from shop.events; delete from shop.events; --"}}, "--map topic: "),
        ({"fields": {"topic": "kind)) from shop.events --"}}, "--map topic: "),
        ({"fields": {"topic": "kind /*"}}, "--map topic: "),
        ({"fields": {"topic": "max(kind)"}}, "--map topic: aggregate"),
        ({"fields": {"topic": "max(kind) over ()"}}, "--map topic: window"),
        ({"fields": {"topic": "generate_series(1, 2)"}}, "--map topic: set-returning"),
        ({"fields": {"topic": "$1::text"}}, "--map topic: "),
        (
            {"fields": {"topic": "(with gone as (delete from shop.events returning 1) select 'x' from gone)"}},
            "--map topic: WITH",
        ),
    ],
)
def test_words_that_mean_nothing_here_are_refused(database: str, changes: dict[str, Any], words: str | None) -> None:
    """By the server, which reads each expression alone; or they are one expression after all."""
    old.home_made(database, rows=2)
    old.run(database, "create view shop.recent as select * from shop.events")
    if words is None:
        assert old.shadow(database, old.words(**changes)).clean
        return
    with pytest.raises(ConfigurationError) as refused:
        old.shadow(database, old.words(**changes))
    assert words in str(refused.value)
    assert old.rows_of(database, "select count(*) from shop.events") == [(2,)]


def test_a_mapping_that_writes_is_refused_by_the_transaction(database: str) -> None:
    """A function may do anything; the shadow lets none write."""
    old.home_made(database, rows=2)
    old.run(database, "create sequence shop.numbers")
    with pytest.raises(ConfigurationError, match="a mapping writes to the database"):
        old.shadow(database, old.words(fields={"topic": "nextval('shop.numbers')"}))


@pytest.mark.parametrize(
    "expression", ["'100%'", "case when kind like '%paid' then 'a%sb' end", "'{braces}'", "'%(rows)s'"]
)
def test_what_means_something_to_a_driver_is_left_alone(database: str, expression: str) -> None:
    """Percent signs and braces of an expression reach the server as they are."""
    old.home_made(database, rows=2)
    read = old.words(fields={"topic": expression}, pending=f"sent_at is null and ({expression}) <> '%'")
    assert old.shadow(database, read).taken == 2
    assert old.adopted(database, read).rows == 2
    insert(database)
    wanted = old.rows_of(database, f"select {expression} from shop.events")  # noqa: S608 -- a test's own words
    assert old.rows_of(database, "select topic from outbox_events") == wanted


@pytest.fixture
def reader(database: str) -> Iterator[str]:
    """A role that may read the old table and the outbox, and nothing else."""
    old.home_made(database, rows=700, sent=50)
    role = sql.Identifier(READER)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            owner.execute(sql.SQL("grant usage on schema shop to {}").format(role))
            owner.execute(sql.SQL("grant select on shop.events, outbox_events, outbox_migrations to {}").format(role))
            yield make_conninfo(database, user=READER, password=PASSWORD)
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(role))
            owner.execute(sql.SQL("drop role {}").format(role))


def test_a_role_that_may_only_read_can_compare(reader: str) -> None:
    """Nothing of the shadow needs more."""
    found = old.shadow(reader)
    assert (found.pending, found.sent, found.clean) == (650, 50, True)


def test_the_shadow_leaves_everything_as_it_was(database: str) -> None:
    """Rows, their versions, the catalogue: nothing is written, and no number is drawn."""
    old.home_made(database, rows=700, sent=50)
    with psycopg.connect(database) as connection:
        emit(connection, event(1))
    before = portrait(database)
    (xid,) = old.rows_of(database, "select pg_current_xact_id()::text::bigint")
    old.shadow(database)
    with pytest.raises(ConfigurationError):
        old.shadow(database, old.words(pending="nothing"))
    (xid_after,) = old.rows_of(database, "select pg_current_xact_id()::text::bigint")
    assert portrait(database) == before
    assert xid_after[0] - xid[0] == 1, "no transaction of the shadow had an id"


def test_rows_hidden_by_a_policy_end_the_shadow(reader: str, database: str) -> None:
    """A row that is not seen would be lost, so not even a part is compared."""
    old.run(
        database, "alter table shop.events enable row level security; create policy few on shop.events using (id < 10)"
    )
    with pytest.raises(ConfigurationError, match="row-level security must not hide rows"):
        old.shadow(reader)


def test_the_watch_sees_rows_that_are_sent_at_once_and_rows_that_commit_late(database: str) -> None:
    """Each is compared once, whatever its state."""
    old.home_made(database, rows=3)
    with closing(connect(database)) as connection, psycopg.connect(database) as late:
        session = old.opened(connection)
        found = begun(session)
        watching = Watch(session, found)
        late.execute("insert into shop.events (kind, order_id, payload) values ('order.late', 1, '{}')")
        insert(database, sent_at="now()")
        insert(database, kind="null")
        assert watching.look() == 2
        late.commit()
        assert watching.look() == 1
        assert watching.look() == 0
    assert (found.pending, found.sent, found.clean) == (2, 1, False)
    assert found.refused["has no event_type"].first == ["6"]


def test_the_watch_sees_a_row_that_was_stored_before_it_began_and_commits_late(database: str) -> None:
    """Its id is below the newest that was there; what was there is not compared again."""
    old.home_made(database, rows=3)
    with closing(connect(database)) as connection, psycopg.connect(database) as late:
        session = old.opened(connection)
        late.execute("insert into shop.events (kind, order_id, payload) values (null, 1, '{}')")
        insert(database)
        found = begun(session)
        watching = Watch(session, found)
        assert watching.look() == 0
        late.commit()
        assert watching.look() == 1
        assert watching.look() == 0
    assert found.refused["has no event_type"].first == ["4"]


def test_the_watch_counts_each_row_once_for_as_long_as_it_lasts(database: str) -> None:
    """Rows that were seen long ago are looked at no more; late ones, and rows that are deleted, do no harm."""
    old.home_made(database, rows=3)
    now = 0.0
    with closing(connect(database)) as connection, psycopg.connect(database) as late:
        session = old.opened(connection)
        watching = Watch(session, begun(session), lambda: now)
        late.execute("insert into shop.events (kind, order_id, payload) values ('order.late', 1, '{}')")
        insert(database)
        assert watching.look() == 1
        now = 40.0
        late.commit()
        insert(database)
        assert watching.look() == 2
        now = 70.0
        assert watching.look() == 0
        assert watching._floor == ("3",), "a row was seen lately that has a lower id than those of long ago"
        old.run(database, "delete from shop.events where id = 5")
        now = 200.0
        assert watching.look() == 0
        assert watching._floor == ("6",)
        insert(database)
        assert watching.look() == 1


def test_the_watch_ends_after_its_time(database: str) -> None:
    """With a last look at what came while it rested."""
    old.home_made(database)
    with closing(connect(database)) as connection:
        session = old.opened(connection)
        found = begun(session)
        rested = []

        def rest(seconds: float) -> None:
            rested.append(seconds)
            insert(database)

        watch(session, found, timedelta(milliseconds=1), old.nothing, rest)
    assert rested
    assert found.taken == len(rested)
