"""What claims and looks visit on a table full of dead rows that a held snapshot keeps in every index."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.statements import statement
from relay.testing.databases import fresh_database
from tests.support.drains import fill
from tests.support.plans import GLANCE, explain

DEAD = 20_000
LIVE = 100
CLAIM: dict[str, Any] = {"rows": 10, "bytes": 10**7, "small": 10**6, "skew": 0.0, "open_topics": [], "open_types": []}
PROBE: dict[str, Any] = {"topic": "events", "types": ["order.paid"], "skew": 0.0}
# What stands below a floor costs no more than the way down a tree; a dead row costs at least part of a page each.
FEW_PAGES = 60


@pytest.fixture(scope="module")
def dead(stack: Stack, template: str) -> Iterator[str]:
    """A database of which nearly all was published after a snapshot that is still open, with and without a key."""
    with fresh_database(stack.database_url, template) as url, psycopg.connect(url) as reader:
        with psycopg.connect(url) as connection:
            connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
        fill(url, DEAD // 2)
        fill(url, DEAD // 2, ordering_key="k")
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1 from outbox_events limit 1")
        with psycopg.connect(url) as connection:
            connection.execute("update outbox_events set published_at = now(), message_id = 'm'")
        fill(url, LIVE)
        yield url


@pytest.fixture
def connection(dead: str) -> Iterator[psycopg.Connection[Any]]:
    """A relay's transaction on that table, rolled back."""
    with psycopg.connect(dead, prepare_threshold=None) as connection:
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000", "local": True})
        yield connection
        connection.rollback()


def pages(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> int:
    """How many pages a statement visited to find its rows."""
    scans = explain(connection, name, values)
    return sum(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] for scan in scans)


def test_the_dead_rows_are_there(connection: psycopg.Connection[Any]) -> None:
    """Without floors they are visited, which is what the other tests would not notice by themselves."""
    assert pages(connection, "claim_fresh", {**CLAIM, "floor": 0}) > DEAD // 50


def test_a_claim_visits_nothing_below_its_floor(connection: psycopg.Connection[Any]) -> None:
    """The first row that it looks at is one that it takes."""
    scan, *end = explain(connection, "claim_fresh", {**CLAIM, "floor": DEAD})
    assert (scan["Index Name"], scan["Actual Rows"]) == ("outbox_events_fresh", 10)
    assert "id > " in scan["Index Cond"]
    assert end == []
    assert pages(connection, "claim_fresh", {**CLAIM, "floor": DEAD}) < FEW_PAGES


def test_a_glance_passes_dead_rows_at_once(connection: psycopg.Connection[Any]) -> None:
    """It is how an idle relay moves its floor. Where nothing has a key, nothing above the floor is visited for it."""
    scans = explain(connection, "glance", {**GLANCE, "ordered_safe": DEAD})
    (end,) = [scan for scan in scans if scan["Index Name"] == "outbox_events_pkey"]
    assert (end["Scan Direction"], end["Actual Rows"]) == ("Backward", 1)
    assert pages(connection, "glance", {**GLANCE, "ordered_safe": DEAD}) < FEW_PAGES


def test_probes_and_controls_visit_nothing_below_the_safe_floor(connection: psycopg.Connection[Any]) -> None:
    """The oldest row of a topic, the next and the newest; and the newest of a batch's topic."""
    assert (
        pages(connection, "claim_probes", {**PROBE, "after_time": "-infinity", "after_id": 0, "floor": DEAD})
        < FEW_PAGES
    )
    limits = {"topic": "events", "types": ["order.paid"], "beyond": DEAD, "rows": 1_000, "bytes": 100_000}
    assert pages(connection, "claim_controls", limits) < LIVE + FEW_PAGES


@pytest.mark.parametrize(("floor", "most"), [(0, 3 * DEAD), (DEAD, FEW_PAGES)])
def test_a_look_visits_what_lies_between_the_safe_floor_and_what_was_seen(
    connection: psycopg.Connection[Any], floor: int, most: int
) -> None:
    """Fresh rows by their own index. Ordered rows, where there are none, by theirs."""
    values = {"seen": DEAD + LIVE, "xid": "3", "fresh_safe": floor, "ordered_safe": floor}
    scans = explain(connection, "floors", values)
    assert [scan["Index Name"] for scan in scans] == ["outbox_events_fresh", "outbox_events_ordered"]
    assert pages(connection, "floors", values) < most


def test_a_look_finds_the_first_ordered_row_by_its_id(connection: psycopg.Connection[Any]) -> None:
    """However many stand behind it, and in however many keys; far away, by the index that holds none but such rows."""
    keyed = "update outbox_events set published_at = null, message_id = null where id > %s and id <= %s"
    connection.execute(keyed, (DEAD - 100, DEAD))
    near = {"seen": DEAD, "xid": "3", "fresh_safe": DEAD, "ordered_safe": DEAD - 100}
    *_, first = explain(connection, "floors", near)
    assert (first["Index Name"], first["Actual Rows"], first.get("Rows Removed by Filter", 0)) == (
        "outbox_events_pkey",
        1,
        0,
    )
    far = {**near, "ordered_safe": -100_000}
    assert [scan["Index Name"] for scan in explain(connection, "floors", far)][-1] == "outbox_events_ordered"


def test_a_look_does_nothing_while_an_older_transaction_is_at_work(connection: psycopg.Connection[Any]) -> None:
    """Its own, for that matter."""
    row = connection.execute("select pg_current_xact_id()::text").fetchone()
    assert row
    values = {"seen": DEAD + LIVE, "xid": row[0], "fresh_safe": 0, "ordered_safe": 0}
    assert explain(connection, "floors", values) == []
    assert connection.execute(statement("floors"), values).fetchone() == (None, None, None)
