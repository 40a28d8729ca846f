"""The plan of the look of a relay that sleeps, pinned on a table whose statistics are wrong."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.listening import MOST_KEYS, MOST_ROWS, Look
from relay.outbox.statements import statement
from relay.testing.databases import fresh_database
from tests.support.plans import explain

ROWS = 20_000
FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, ordering_key, payload, available_at,
                           published_at, message_id, failed_at, failure_reason, blocks_key)
select id, 'order.paid', 'order', n::text,
       case when state in ('blocked', 'behind') then 'b' || mod(n, 500) when state = 'out' then 'o' || n end,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', n),
       case state when 'scheduled' then now() + interval '1 day' + n * interval '1 s' else '-infinity' end,
       case when state in ('published', 'out') then now() end, case when state in ('published', 'out') then 'm' end,
       case when state in ('failed', 'blocked') then now() end,
       case when state in ('failed', 'blocked') then 'max_attempts' end, state = 'blocked'
  from unnest(array['published', 'failed', 'out', 'scheduled', 'blocked', 'behind'])
       with ordinality as s (state, place),
       generate_series(1, %s) as n,
       lateral (select md5(state || n)::uuid as id) as identity
 order by place, n
"""
VALUES: dict[str, Any] = {
    "fresh_safe": 0,
    "ordered_safe": 0,
    "after": "",
    "keys": MOST_KEYS,
    "rows": MOST_ROWS,
    "reach": MOST_ROWS,
    "open_topics": [],
    "open_types": [],
    "mark": "3",
    "skew": 0.0,
}


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[str]:
    """A database with rows in every state in which nothing is due: none of them analysed."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
            connection.execute(FILL, (ROWS,))
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """The session of a relay that sleeps, for tests that commit nothing."""
    with psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(statement("listen_enter"), {"search_path": '"public"', "statement_ms": "10000"})
        yield connection
        connection.rollback()


def look(connection: psycopg.Connection[Any], **values: Any) -> Look:
    """What is found."""
    row = connection.execute(statement("look"), {**VALUES, **values}).fetchone()
    assert row
    return Look(*row)


def test_a_look_takes_one_step_for_each_index_and_each_key(connection: psycopg.Connection[Any]) -> None:
    """However many rows were published, failed, are for later, or wait behind a failed one of their key."""
    found = look(connection)
    assert (found.claimable, found.settled, found.last_key) == ([], True, None)
    assert found.due_in_seconds == pytest.approx(86_400, abs=120)

    scans = explain(connection, "look", VALUES)
    assert {scan["Index Name"] for scan in scans} == {
        "outbox_events_fresh",
        "outbox_events_delayed",
        "outbox_events_ordered",
        "outbox_events_put_off",
    }
    steps = {scan["Index Name"]: scan["Actual Loops"] for scan in scans}
    assert steps["outbox_events_ordered"] == 501
    assert all(scan["Actual Rows"] * scan["Actual Loops"] <= 501 for scan in scans)
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in scans) == 0


@pytest.mark.parametrize(
    ("fields", "claimable"),
    [
        ({}, True),
        ({"available_at": "2020-01-01Z"}, True),
        ({"available_at": "2099-01-01Z"}, False),
        ({"ordering_key": "a"}, True),
        ({"ordering_key": "b7"}, False),
        ({"ordering_key": "z", "available_at": "2099-01-01Z"}, False),
    ],
)
def test_one_row_that_is_due_is_seen_among_all_others(
    connection: psycopg.Connection[Any],
    fields: dict[str, Any],
    claimable: bool,  # noqa: FBT001 -- what is expected
) -> None:
    """Fresh, put off, or the first of its key; what is for later, or behind a failed row, is not due."""
    columns = "".join(f", {name}" for name in fields)
    values = "".join(", %s" for _ in fields)
    connection.execute(
        f"""insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload{columns})
            select id, 'a', 'b', 'c', jsonb_build_object('event_id', id, 'event_type', 'a', 'version', 1, 'occurred_at',
                   '2026-01-01T00:00:00Z', 'actor', null, 'data', 1){values} from gen_random_uuid() as id""".encode(),  # noqa: S608
        list(fields.values()),
    )
    assert len(look(connection).claimable) == claimable
    closed = {"open_topics": ["t"], "open_types": ["a"], "reach": 10}
    assert look(connection, **closed).claimable == []
    assert len(look(connection, **{**closed, "open_types": ["b"]}).claimable) == claimable


def test_a_row_that_is_due_within_a_moment_is_announced(connection: psycopg.Connection[Any]) -> None:
    """Without a key or with one, whichever comes first."""
    connection.execute(
        "update outbox_events set failed_at = null, failure_reason = null, blocks_key = false, "
        "available_at = clock_timestamp() + interval '90 s' where ordering_key = 'b3' and blocks_key"
    )
    assert look(connection).due_in_seconds == pytest.approx(90, abs=5)
    assert look(connection, skew=100.0).claimable


def test_a_look_walks_so_many_keys_and_the_next_goes_on(connection: psycopg.Connection[Any]) -> None:
    """Up to the last one, behind which there is nothing."""
    visited: list[str | None] = [""]
    while visited[-1] is not None:
        found = look(connection, keys=200, after=visited[-1])
        assert found.claimable == []
        visited.append(found.last_key)
    assert visited == ["", "b278", "b458", None]


def test_what_can_be_taken_is_named_the_newest_first(connection: psycopg.Connection[Any]) -> None:
    """So that what could not be taken is told from what is new; no more rows than are asked for are read."""
    fresh = ids_where(connection, "ordering_key is null and available_at > now() order by id desc limit 30")
    connection.execute("update outbox_events set available_at = '-infinity' where id = any (%s)", (fresh,))
    delayed = ids_where(connection, "ordering_key is null and available_at > now() order by id limit 30")
    connection.execute(
        "update outbox_events set available_at = now() - make_interval(secs => id) where id = any (%s)", (delayed,)
    )
    first = "select min(id) from outbox_events where blocks_key group by ordering_key"
    heads = ids_where(connection, f"id in ({first}) order by ordering_key limit 30")
    connection.execute(
        "update outbox_events set failed_at = null, failure_reason = null, blocks_key = false where id = any (%s)",
        (heads,),
    )
    found = look(connection)
    assert found.claimable == [*fresh, *delayed, *heads]
    assert found.last_key is None

    few = look(connection, rows=5, reach=5)
    assert few.claimable == [*fresh[:5], *delayed[:5], *heads[:5]]
    assert few.last_key is not None
    scans = explain(connection, "look", {**VALUES, "rows": 5, "reach": 5})
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) <= 16


def ids_where(connection: psycopg.Connection[Any], condition: str) -> list[int]:
    """The ids of rows that are not published."""
    return [
        row_id
        for (row_id,) in connection.execute(
            f"select id from outbox_events where published_at is null and {condition}".encode()  # noqa: S608
        )
    ]


def test_what_lies_below_the_floors_is_not_looked_at(connection: psycopg.Connection[Any]) -> None:
    """No row waits there."""
    scans = explain(connection, "look", {**VALUES, "ordered_safe": 10**9})
    steps = {scan["Index Name"]: scan["Actual Loops"] for scan in scans}
    assert steps["outbox_events_ordered"] == 1


def test_transactions_from_before_the_mark_are_waited_for(connection: psycopg.Connection[Any], filled: str) -> None:
    """Until the last of them has ended."""
    connection.rollback()
    with psycopg.connect(filled) as open_one, psycopg.connect(filled, autocommit=True) as sleeper:
        open_one.execute("select pg_current_xact_id()")
        row = sleeper.execute("select pg_current_xact_id()::text").fetchone()
        assert row
        assert not look(connection, mark=row[0]).settled
        connection.rollback()
        open_one.rollback()
        assert look(connection, mark=row[0]).settled
