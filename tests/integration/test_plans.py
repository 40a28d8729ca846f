"""The plans of the statements that grow with the data, pinned on a table whose statistics are wrong."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.statements import statement
from relay.testing.databases import fresh_database
from tests.support.plans import GLANCE, explain

# As many rows of each state; none of them analysed, as after a burst on a new table.
ROWS = 20_000

FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload, available_at,
                           published_at, message_id, failed_at, failure_reason)
select id, 'order.paid', 'order', n::text,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', n),
       case state when 'scheduled' then now() + interval '1 day' when 'due' then now() else '-infinity' end,
       case state when 'published' then now() end, case state when 'published' then 'm' end,
       case state when 'failed' then now() end, case state when 'failed' then 'max_attempts' end
  from unnest(array['published', 'failed', 'scheduled', 'due', 'fresh']) as state, generate_series(1, %s) as n,
       lateral (select md5(state || n)::uuid as id) as identity
"""

CLAIM: dict[str, Any] = {
    "rows": 1_000,
    "bytes": 16_000_000,
    "carries": True,
    "small": 16_000,
    "skew": 0.0,
    "floor": 0,
    "open_topics": [],
    "open_types": [],
}


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[str]:
    """A database with rows in every state, for tests that commit nothing."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
            connection.execute(FILL, (ROWS,))
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """A relay's transaction on the filled table, rolled back."""
    with psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000", "local": True})
        yield connection
        connection.rollback()


@pytest.mark.parametrize(
    ("name", "index"), [("claim_fresh", "outbox_events_fresh"), ("claim_delayed", "outbox_events_delayed")]
)
def test_a_claim_reads_what_it_takes_and_no_more(connection: psycopg.Connection[Any], name: str, index: str) -> None:
    """Rows in other states are not even looked at."""
    (scan,) = explain(connection, name, CLAIM)
    assert scan["Index Name"] == index
    assert (scan["Actual Rows"], scan.get("Rows Removed by Filter", 0)) == (1_000, 0)


def test_a_claim_walks_over_the_rows_of_open_topics(connection: psycopg.Connection[Any]) -> None:
    """Each is looked at once, in the index's own order, and none of them is locked."""
    (scan,) = explain(connection, "claim_fresh", {**CLAIM, "open_topics": ["events"], "open_types": ["order.paid"]})
    assert scan["Index Name"] == "outbox_events_fresh"
    assert (scan["Actual Rows"], scan["Rows Removed by Filter"]) == (0, ROWS)


def test_a_glance_is_a_look_at_the_ends_of_the_indexes(connection: psycopg.Connection[Any]) -> None:
    """The newest row, the first that was put off, and that no row has a key, whatever else stands there."""
    scans = explain(connection, "glance", GLANCE)
    assert {(scan["Index Name"], scan["Scan Direction"], scan["Actual Rows"]) for scan in scans} == {
        ("outbox_events_pkey", "Backward", 1),
        ("outbox_events_delayed", "Forward", 1),
        ("outbox_events_put_off", "Forward", 0),
        ("outbox_events_ordered", "Forward", 0),
    }
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in scans) == 0


def test_a_probe_looks_at_the_ends_of_the_indexes(connection: psycopg.Connection[Any]) -> None:
    """Three rows out of any number: the first, the next after a place, the last."""
    place = {"after_time": "-infinity", "after_id": ROWS // 2, "floor": 0, "skew": 0.0}
    scans = explain(connection, "claim_probes", {"topic": "events", "types": ["order.paid"], **place})
    assert {scan.get("Index Name") for scan in scans} == {
        "outbox_events_fresh",
        "outbox_events_delayed",
        "outbox_events_pkey",
    }
    assert max(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in scans) <= 3


def test_controls_are_the_newest_rows(connection: psycopg.Connection[Any]) -> None:
    """Read from the end of the index, and no more than are asked for."""
    limits = {"topic": "events", "types": ["order.paid"], "beyond": ROWS // 2, "rows": 50, "bytes": 100_000}
    (scan,) = explain(connection, "claim_controls", limits)
    assert (scan["Index Name"], scan["Scan Direction"]) == ("outbox_events_fresh", "Backward")
    assert (scan["Actual Rows"], scan.get("Rows Removed by Filter", 0)) == (50, 0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("settle_published", {"expected": 1_000, "message_ids": ["m"] * 1_000, "topic": "t"}),
        (
            "settle_charged",
            {
                "expected": 1_000,
                "attempts": [1] * 1_000,
                "codes": ["c"] * 1_000,
                "errors": ["e"] * 1_000,
                "reasons": [None, "max_attempts"] * 500,
                "blocks": [False] * 1_000,
                "delays": [1.0] * 1_000,
                "skew": 0.0,
            },
        ),
    ],
)
def test_settling_looks_rows_up_by_id(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> None:
    """One index lookup a row; without statistics the planner would compare every pending row with every id."""
    ids = [
        row[0]
        for row in connection.execute(
            "select id from outbox_events where published_at is null and failed_at is null order by id limit 1000"
        )
    ]
    (lookup,) = explain(connection, name, {"ids": ids, **values})
    assert lookup["Index Name"] == "outbox_events_pkey"
    assert (lookup["Actual Loops"], lookup["Actual Rows"], lookup["Rows Removed by Filter"]) == (1_000, 1, 0)


def test_a_glance_looks_for_nothing_unasked(connection: psycopg.Connection[Any]) -> None:
    """Every row of a bulk insert that is not committed yet would be passed on the way, by each claim of a drain."""
    assert explain(connection, "glance", {**GLANCE, "newest": False, "keys": False, "due": False}) == []
