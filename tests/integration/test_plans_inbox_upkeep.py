"""The upkeep of an inbox of 200,000 deliveries: a page costs what is in it, whatever is in the table."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from consumers.inbox.cleaning import finished_deliveries
from consumers.inbox.session import statement
from relay.postgres.statements import search_path
from relay.testing.databases import fresh_database
from tests.support.moving import page_of
from tests.support.moving import visited as visited_by
from tests.support.plans import analysed_for_now, prepare, scans_of

pytestmark = pytest.mark.slow("fills a large inbox")

DELIVERIES, PAGE = 200_000, 500
KEY = "inbox_deliveries_pkey"
POSITION = '{"after": 100000}'
# The first three quarters ended a hundred days ago; every tenth one has failed; two consumers take turns.
FILL = f"""
    insert into inbox_deliveries
           (consumer, event_id, event_type, envelope, state, outcome, handler_version, created_at, finished_at)
    select (array['billing', 'shipping'])[n % 2 + 1], gen_random_uuid(), 'order.paid', '{{}}',
           case when n % 10 = 0 then 'failed' else 'done' end, 'ok', 1, at, at
      from generate_series(1, {DELIVERIES}) as n
     cross join lateral (
           select now() - make_interval(days => case when n <= {DELIVERIES} * 3 / 4 then 100 else 1 end)
           ) as times(at);
    insert into inbox_history (delivery_id, what)
    select id, what from inbox_deliveries cross join (values ('created'), ('done')) as entries(what)
     where id % 5 = 0;
    insert into inbox_checkpoints (consumer, name, position) values ('shipping', 'walk', '{POSITION}');
    insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload)
    select each.id, 'order.paid', 'order', n::text,
           jsonb_build_object('event_id', each.id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now()::text,
                              'actor', null, 'data', n)
      from (select n, gen_random_uuid() as id from generate_series(1, 20000) as n) as each;
"""  # noqa: S608 -- a test's own words
WALK: dict[str, Any] = {"consumer": "shipping", "name": "walk", "before": POSITION, "skew": 0.0}


@pytest.fixture(scope="module")
def filled(inbox_template: str, outbox_postgres_url: str) -> Iterator[str]:
    """The tables, for tests that commit nothing; nobody has looked at them since they were filled."""
    with fresh_database(outbox_postgres_url, inbox_template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(FILL.encode())
        yield url


@pytest.fixture(params=[False, True], ids=["never analysed", "analysed"])
def connection(filled: str, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A session of the inbox, rolled back."""
    with analysed_for_now(filled), psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(
            statement("enter"), {"search_path": search_path("public"), "statement_ms": "30000", "local": True}
        )
        if request.param:
            connection.execute("analyze inbox_deliveries, inbox_history, inbox_checkpoints, outbox_events")
        yield connection
        connection.rollback()


def visited(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> dict[str, int]:
    """How many rows of each index a statement looked at."""
    found: dict[str, int] = {}
    for scan in scans_of(connection, prepare(connection, name, statement), values):
        rows = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        found[index] = found.get(index, 0) + round(rows)
    return {index: rows for index, rows in found.items() if rows}


def test_a_page_of_the_cleaning_looks_at_its_rows(filled: str, connection: psycopg.Connection[Any]) -> None:
    """Once to hold what is over, once to find it and once to remove it, with the history by its key."""
    table = finished_deliveries("public", "shipping", timedelta(days=90))
    page = asyncio.run(page_of(filled, table))
    assert visited_by(connection, page.look(["100000"], PAGE)) == {KEY: PAGE}

    between = ["100000"], [str(100_000 + PAGE)], PAGE
    assert visited_by(connection, page.hold(*between))[KEY] == PAGE
    found = visited_by(connection, page.move(*between))
    assert connection.execute("select count(*) from inbox_deliveries").fetchone() == (DELIVERIES - PAGE // 2,)
    assert found == {KEY: PAGE + PAGE // 2, "inbox_history_pkey": 2 * PAGE // 10}


@pytest.mark.parametrize(("name", "index"), [("risen_ended", KEY), ("risen_failed", "inbox_deliveries_failed")])
def test_a_page_that_looks_for_old_revisions_looks_at_its_rows(
    connection: psycopg.Connection[Any], name: str, index: str
) -> None:
    """All that has ended by the primary key, however few of them are meant; what has failed by its own index."""
    values = {
        "consumer": "billing",
        "revision": 2,
        "exact": True,
        "event_type": "order.paid",
        "after": DELIVERIES // 2,
        "newest": DELIVERIES,
        "rows": 2_000,
    }
    assert visited(connection, name, values) == {index: 2_000}


def test_what_is_handled_again_is_found_by_its_ids(connection: psycopg.Connection[Any]) -> None:
    """As many as are asked for, once to hold and once to change them."""
    ids = list(range(DELIVERIES // 2 + 1, DELIVERIES // 2 + 1 + PAGE))
    values = {**WALK, "position": '{"after": 1}', "finished": False, "ids": ids, "done": True, "revision": 2}
    assert visited(connection, "requeue", values) == {KEY: 2 * PAGE, "inbox_checkpoints_pkey": 1}


def test_a_page_of_the_outbox_is_read_by_its_key(connection: psycopg.Connection[Any]) -> None:
    """In its order, without sorting."""
    values = {
        "types": [],
        "beginnings": ["order."],
        "after": 10_000,
        "newest": 20_000,
        "rows": PAGE,
        "bytes": 8_000_000,
        "floor": None,
    }
    assert visited(connection, "outbox_page", values) == {"outbox_events_pkey": PAGE}


def test_what_is_there_already_is_found_by_its_event_ids(connection: psycopg.Connection[Any]) -> None:
    """A step of the unique index for each that is asked for."""
    found = connection.execute(
        "select array_agg(event_id) from "
        "(select event_id from inbox_deliveries where consumer = 'billing' limit 500) as first"
    ).fetchone()
    assert found is not None
    values: dict[str, Any] = {**WALK, "consumer": "billing", "event_ids": found[0]}
    assert visited(connection, "absent", values) == {"inbox_deliveries_unique": PAGE}

    stored = {**values, "consumer": "shipping", "position": "{}", "finished": False, "stored": 0, "missing": 0}
    assert visited(connection, "checkpoint_stored", stored) == {"inbox_checkpoints_pkey": 1}
