"""Every statement of the relay's work on a table of millions: it visits what it answers with, and little else."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.order import KEYS_A_CLAIM, ROWS_A_KEY
from relay.outbox.statements import statement
from relay.testing.databases import fresh_database
from tests.support.big_outbox import BLOCKED, DUE, FRESH, KEYS, fill
from tests.support.plans import GLANCE, explain

pytestmark = [pytest.mark.slow("fills a table with 1.7 million rows"), pytest.mark.timeout(300)]

ROWS = 1_000
FRESH_INDEX, DELAYED_INDEX, ORDERED_INDEX = "outbox_events_fresh", "outbox_events_delayed", "outbox_events_ordered"
ID_INDEX = "outbox_events_pkey"
LIMITS: dict[str, Any] = {
    "rows": ROWS,
    "bytes": 4_000_000,
    "carries": True,
    "small": 4_000,
    "skew": 0.0,
    "floor": 0,
    "open_topics": [],
    "open_types": [],
}
WALK: dict[str, Any] = {
    **LIMITS,
    "after": "",
    "keys": KEYS_A_CLAIM,
    "share": ROWS_A_KEY,
    "topic": None,
    "types": [],
    "without": [],
}
TOPIC: dict[str, Any] = {"topic": "events", "types": ["order.paid"]}
LOOK: dict[str, Any] = {
    "fresh_safe": 0,
    "ordered_safe": 0,
    "after": "",
    "keys": KEYS_A_CLAIM,
    "rows": 1,
    "reach": 1,
    "open_topics": [],
    "open_types": [],
    "skew": 0.0,
    "mark": "3",
}


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[str]:
    """The table, for tests that commit nothing."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            fill(connection)
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """A relay's transaction on it, rolled back."""
    with psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000", "local": True})
        yield connection
        connection.rollback()


def visited(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> dict[str, int]:
    """How many rows of the table a statement looked at, by the index that it found them with."""
    found: dict[str, int] = {}
    for scan in explain(connection, name, values):
        rows = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        found[index] = found.get(index, 0) + round(rows)
    return {index: rows for index, rows in found.items() if rows}


def ids(connection: psycopg.Connection[Any], condition: str) -> list[int]:
    """The first thousand rows of a kind."""
    found = connection.execute(f"select id from outbox_events where {condition} order by id limit 1000".encode())  # noqa: S608
    return [row[0] for row in found]


def test_a_claim_of_fresh_rows(connection: psycopg.Connection[Any]) -> None:
    """A thousand, found one behind the other."""
    assert visited(connection, "claim_fresh", LIMITS) == {FRESH_INDEX: ROWS}


def test_a_claim_of_fresh_rows_that_finds_few(connection: psycopg.Connection[Any]) -> None:
    """What is left."""
    (last,) = connection.execute("select max(id) - 10 from outbox_events").fetchone() or (0,)
    assert visited(connection, "claim_fresh", {**LIMITS, "floor": last}) == {FRESH_INDEX: 10}


def test_reading_rows_that_are_not_small(connection: psycopg.Connection[Any]) -> None:
    """By their ids alone."""
    wanted = ids(connection, "ordering_key is null and published_at is null and available_at = '-infinity'")
    assert visited(connection, "read_large", {"ids": wanted}) == {ID_INDEX: ROWS}


def test_a_claim_of_due_rows(connection: psycopg.Connection[Any]) -> None:
    """None of those that are for tomorrow."""
    assert visited(connection, "claim_delayed", LIMITS) == {DELAYED_INDEX: ROWS}


def test_a_glance(connection: psycopg.Connection[Any]) -> None:
    """One row of each kind: the newest, the first with a key, the first that is due."""
    assert visited(connection, "glance", GLANCE) == {ID_INDEX: 1, ORDERED_INDEX: 1, DELAYED_INDEX: 1}


def test_the_walk_over_keys_passes_a_blocked_one_in_one_step(connection: psycopg.Connection[Any]) -> None:
    """Half a million rows wait behind its first. Of the others one row each: to find it, to count it, to name it."""
    assert visited(connection, "walk_keys", WALK) == {ORDERED_INDEX: 1 + 3 * (KEYS_A_CLAIM - 1)}


def test_the_walk_over_keys_that_cannot_go_on(connection: psycopg.Connection[Any]) -> None:
    """Rows of an open topic: the first of each key is all that is looked at."""
    closed = {"open_topics": ["events"], "open_types": ["order.paid"]}
    assert visited(connection, "walk_keys", {**WALK, **closed}) == {ORDERED_INDEX: KEYS_A_CLAIM}


def test_a_deep_key_is_read_as_far_as_it_is_claimed(connection: psycopg.Connection[Any]) -> None:
    """The blocked key without its head: a hundred rows to count, a claim of it where it is alone."""
    connection.execute("update outbox_events set failure_reason = 'discarded', blocks_key = false where blocks_key")
    found = visited(connection, "walk_keys", {**WALK, "keys": 1})
    # Its first row is dead by now, and was visited as well.
    assert found == {ORDERED_INDEX: 1 + ROWS_A_KEY + ROWS}


def test_locking_rows_of_keys(connection: psycopg.Connection[Any]) -> None:
    """By their ids alone."""
    wanted = ids(connection, "ordering_key like 'key-%' and published_at is null")
    values = {**LIMITS, "ids": wanted, "key_places": list(range(ROWS))}
    assert visited(connection, "claim_ordered", values) == {ID_INDEX: ROWS}


def test_a_probe(connection: psycopg.Connection[Any]) -> None:
    """The ends of the indexes."""
    found = visited(connection, "claim_probes", {**TOPIC, **LIMITS, "after_time": "-infinity", "after_id": 0})
    assert set(found) == {FRESH_INDEX, DELAYED_INDEX, ID_INDEX}
    assert sum(found.values()) <= 12


def test_controls(connection: psycopg.Connection[Any]) -> None:
    """The newest rows, from the end of the index."""
    found = visited(connection, "claim_controls", {**TOPIC, "beyond": 0, "rows": 50, "bytes": 100_000})
    assert found == {FRESH_INDEX: 50}


def test_the_first_rows_of_a_topics_keys(connection: psycopg.Connection[Any]) -> None:
    """As many keys as are wanted, and the blocked one."""
    heads = {**WALK, **TOPIC, "share": 1, "rows": 3}
    assert visited(connection, "walk_keys", heads)[ORDERED_INDEX] <= 1 + 3 * 3


def test_the_newest_key_of_a_topic(connection: psycopg.Connection[Any]) -> None:
    """A thousand rows from the table's end at most; here none of them has a key."""
    found = visited(connection, "newest_key", TOPIC)
    assert found == {ID_INDEX: 1_000}


@pytest.mark.parametrize("statement_name", ["settle_published", "settle_charged"])
def test_settling(connection: psycopg.Connection[Any], statement_name: str) -> None:
    """One lookup a row."""
    rows = ids(connection, "published_at is null and failed_at is null and available_at = '-infinity'")
    charged = {"attempts": [1] * ROWS, "codes": ["c"] * ROWS, "errors": ["e"] * ROWS, "reasons": [None] * ROWS}
    kinds: dict[str, dict[str, Any]] = {
        "settle_published": {"expected": ROWS, "message_ids": ["m"] * ROWS, "topic": "t"},
        "settle_charged": {**charged, "expected": ROWS, "blocks": [False] * ROWS, "delays": [1.0] * ROWS, "skew": 0.0},
    }
    values = {"ids": rows, **kinds[statement_name]}
    assert visited(connection, statement_name, values) == {ID_INDEX: ROWS}


def test_the_look_of_a_relay_that_sleeps(connection: psycopg.Connection[Any]) -> None:
    """It ends at the first row that is due; the blocked key is one step of it."""
    found = visited(connection, "look", LOOK)
    assert found[FRESH_INDEX] == 1
    assert sum(found.values()) <= 6


def test_the_look_where_nothing_is_due(connection: psycopg.Connection[Any]) -> None:
    """The first of the scheduled rows, one row a key, and no row behind a blocked one."""
    connection.execute("set local enable_seqscan = on")
    connection.execute(
        "update outbox_events set published_at = now(), message_id = 'm' where published_at is null "
        "and failed_at is null and available_at <= now() and ordering_key is distinct from 'blocked'"
    )
    connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000", "local": True})
    found = visited(connection, "look", LOOK)
    assert {index: rows for index, rows in found.items() if rows} == {ORDERED_INDEX: 1, DELAYED_INDEX: 1}


def test_the_look_for_safe_floors(connection: psycopg.Connection[Any]) -> None:
    """The first row that waits, of either kind; what is published or failed is not looked at twice."""
    (blocked, seen) = connection.execute(
        "select (select id from outbox_events where blocks_key), (select max(id) from outbox_events)"
    ).fetchone() or (0, 0)
    floors = {"xid": "3", "seen": seen, "fresh_safe": blocked, "ordered_safe": blocked - 1_000}
    found = visited(connection, "floors", floors)
    assert found[FRESH_INDEX] == 1
    assert sum(found.values()) <= 2_010


@pytest.mark.parametrize("name", ["queue", "keys", "blocked_keys"])
def test_the_looks_of_operators_are_bounded(connection: psycopg.Connection[Any], name: str) -> None:
    """They count up to their limits, whatever the table holds, and read no published row."""
    connection.execute(statement("operate_enter"), {"search_path": '"public"'})
    found = visited(connection, name, {"most": 10_000, "keys": 1_000, "shown": 10})
    assert found.pop(ID_INDEX, 0) <= 10
    assert all(scan.startswith("outbox_events_") for scan in found), found
    assert sum(found.values()) <= 12 * 10_000


def test_the_table_is_as_large_as_it_says(connection: psycopg.Connection[Any]) -> None:
    """Or the tests above would show nothing."""
    connection.execute("set local enable_seqscan = on")
    counts = connection.execute(
        "select count(*) filter (where published_at is not null), count(*) filter (where failed_at is not null), "
        "count(*) filter (where available_at > now()), count(*) filter (where ordering_key = 'blocked'), "
        "count(*) filter (where published_at is null and failed_at is null and ordering_key is null "
        "and available_at <= now()), count(*) filter (where ordering_key like 'key-%') from outbox_events"
    ).fetchone()
    assert counts == (1_000_000, 100_001, 100_000, BLOCKED, FRESH + DUE, KEYS)
