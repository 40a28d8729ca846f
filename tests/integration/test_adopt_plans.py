"""The plans of what a take-over asks of an old table: by the index of the ids, or by one of the rows that wait."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay.adopt.session import Session
from relay.dev.stack import Stack
from relay.testing.databases import fresh_database
from tests.support import old_outboxes as old
from tests.support.plans import nodes

ROWS, WAITING = 60_000, 3_000
PARTIAL = "create index waiting on shop.events (id) where sent_at is null"


@pytest.fixture(scope="module", params=["by its id", "with an index of what waits"])
def filled(request: pytest.FixtureRequest, stack: Stack, template: str) -> Iterator[tuple[str, str]]:
    """A large old table, most of it sent, as a home-made outbox is; with or without an index on what waits."""
    with fresh_database(stack.database_url, template) as url:
        old.home_made(url, rows=ROWS, sent=ROWS - WAITING)
        if request.param != "by its id":
            old.run(url, PARTIAL)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum analyze shop.events")
        yield url, "waiting" if request.param != "by its id" else "events_pkey"


@pytest.fixture
def session(filled: tuple[str, str]) -> Iterator[tuple[Session, str]]:
    """A session on it, and the index by which rows that wait are to be found."""
    url, index = filled
    with psycopg.connect(url, prepare_threshold=None) as connection:
        yield old.opened(connection), index
        connection.rollback()


def scans(session: Session, query: sql.Composed, values: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    """How the plan touches the old table: kind of scan, index, and how many rows it looked at."""
    with session.connection.transaction(force_rollback=True), session.transaction():
        row = session.connection.execute(
            sql.SQL("explain (analyze, format json, timing off) ") + query, values
        ).fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return [
        (
            node["Node Type"],
            node.get("Index Name"),
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"],
        )
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name") == "events" and node["Node Type"].endswith("Scan")
    ]


def test_a_page_of_what_waits_is_read_by_an_index(session: tuple[Session, str]) -> None:
    """Behind the id before it, and no further than the page."""
    opened, index = session
    after = {"after_0": str(ROWS - WAITING), "rows": 500}
    for values in ({**after}, {**after, "after_0": str(ROWS - 900)}):
        for last in (None, (str(ROWS - 100),)):
            page = opened.queries.page(("1",), last=last)
            ((kind, used, looked),) = scans(opened, page, {**values, **opened.queries.key("last", last)})
            assert kind in {"Index Scan", "Index Only Scan"}
            assert used in {index, "events_pkey"}
            assert looked <= 501


def test_the_first_page_reads_what_waits_where_there_is_an_index_of_it(session: tuple[Session, str]) -> None:
    """Without one it comes by everything that is sent, once a pass: what docs/moving-in.md says of it."""
    opened, index = session
    ((kind, used, looked),) = scans(opened, opened.queries.page(None, last=("1",)), {"rows": 500, "last_0": str(ROWS)})
    if index == "waiting":
        assert (kind.startswith("Index"), used) == (True, "waiting")
        assert looked <= 501
    else:
        assert looked <= ROWS


@pytest.mark.parametrize("asked", ["judge", "lock", "emit", "mark"])
def test_chosen_rows_are_found_by_their_ids(session: tuple[Session, str], asked: str) -> None:
    """However the list of ids is joined, no row is looked at that lies outside of it."""
    opened, index = session
    keys = [(str(number),) for number in range(ROWS - 1_000, ROWS - 500)]
    for kind, used, looked in scans(opened, getattr(opened.queries, asked)(), opened.queries.values(keys)):
        assert kind != "Seq Scan"
        assert used in {index, "events_pkey", None}
        assert looked <= 501


def test_the_newest_rows_are_read_backwards_by_the_ids(session: tuple[Session, str]) -> None:
    """Past those that still wait, and no further than as many as are wanted."""
    opened, _ = session
    ((kind, used, looked),) = scans(opened, opened.queries.newest(sent=True), {"rows": 100})
    assert (kind.startswith("Index"), used) == (True, "events_pkey")
    assert looked <= WAITING + 100
