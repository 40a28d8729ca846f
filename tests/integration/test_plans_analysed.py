"""The same plans on a table that was analysed at the worst moment: its statistics tell what is not so any more.

An outbox is analysed while it holds a backlog, or nothing but what was published, or no ordered events at all. With
statistics like these another index looks as good as the right one, and is a walk over everything.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.outbox.statements import statement
from tests.support.plans import explain
from tests.support.postgres import fresh_database

ROWS = 20_000
# What a statement may touch beyond the rows that it answers with.
FEW = 20

FILL = """
insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload, ordering_key, published_at,
                           message_id)
select id, 'order.paid', 'order', n::text,
       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1, 'occurred_at', now(),
                          'actor', null, 'data', n),
       case when %(keys)s > 0 then 'key-' || n %% greatest(%(keys)s, 1) end,
       case when %(published)s then now() end, case when %(published)s then 'm' end
  from generate_series(1, %(rows)s) as n,
       lateral (select md5(concat(n, '-', %(keys)s, %(published)s))::uuid as id) as identity
"""
FRESH: dict[str, Any] = {"keys": 0, "published": False}
ORDERED: dict[str, Any] = {"keys": 50, "published": False}
PUBLISHED: dict[str, Any] = {"keys": 0, "published": True}
STATES: dict[str, list[dict[str, Any]]] = {
    "a backlog": [FRESH],
    "ordered events only": [ORDERED],
    "published events only": [PUBLISHED],
    "all": [FRESH, ORDERED, PUBLISHED],
}

CLAIM: dict[str, Any] = {"rows": 100, "bytes": 10**7, "skew": 0.0, "floor": 0, "open_topics": [], "open_types": []}
WALK = {**CLAIM, "share": 100, "after": "", "topic": None, "types": [], "keys": 1_000, "without": []}
LOOK = {
    "rows": 100,
    "reach": 10_000,
    "skew": 0.0,
    "fresh_safe": 0,
    "ordered_safe": 0,
    "keys": 1_000,
    "after": "",
    "mark": "1",
    "open_topics": [],
    "open_types": [],
}
FLOORS = {"seen": 3 * ROWS, "xid": "1", "fresh_safe": 0, "ordered_safe": 0}
# The most rows of the table that each of them may visit, whatever there is.
STATEMENTS: dict[str, tuple[dict[str, Any], int]] = {
    "claim_fresh": (CLAIM, 100),
    "claim_delayed": (CLAIM, 0),
    "due": ({"skew": 0.0}, 0),
    "walk_keys": (WALK, 2 * 100),
    "look": (LOOK, 2 * 100),
    # By ids, near the floor: further away it looks by the index of ordered rows.
    "floors": (FLOORS, 2 * ROWS),
}


@pytest.fixture(scope="module", params=list(STATES.values()), ids=list(STATES))
def analysed(request: pytest.FixtureRequest, stack: Stack, template: str) -> Iterator[str]:
    """A database in one of the states, with statistics of just that."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
            for values in request.param:
                connection.execute(FILL, {**values, "rows": ROWS})
            connection.execute("vacuum analyze outbox_events")
        yield url


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("emptied", [False, True], ids=["as it was", "published since"])
def test_no_statistics_make_it_walk(analysed: str, name: str, *, emptied: bool) -> None:
    """It visits what it takes, and no more."""
    values, most = STATEMENTS[name]
    with psycopg.connect(analysed, prepare_threshold=None) as connection:
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000"})
        if emptied and name != "floors":
            # What was in the claim's indexes is dead now; floors are what spares a claim that, and are not the matter.
            connection.execute("update outbox_events set ordering_key = null, published_at = now(), message_id = 'm'")
            values = {**values, "floor": 4 * ROWS, "fresh_safe": 4 * ROWS, "ordered_safe": 4 * ROWS}
        scans = explain(connection, name, values)
        connection.rollback()
    visited = sum(
        scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) for scan in scans
    )
    assert visited <= most + FEW, [(scan["Index Name"], scan["Actual Rows"]) for scan in scans]
