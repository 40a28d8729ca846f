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
from relay.testing.databases import fresh_database
from tests.support.plans import GLANCE, explain, prepare, run, scans_of, touching

pytestmark = pytest.mark.slow("fills and analyses four large tables")

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

CLAIM: dict[str, Any] = {
    "rows": 100,
    "bytes": 10**7,
    "carries": True,
    "small": 10**5,
    "skew": 0.0,
    "floor": 0,
    "open_topics": [],
    "open_types": [],
}
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
    "glance": (GLANCE, 3),
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
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "20000", "local": True})
        if emptied and name != "floors":
            # What was in the claim's indexes is dead now; floors are what spares a claim that, and are not the matter.
            connection.execute("update outbox_events set ordering_key = null, published_at = now(), message_id = 'm'")
            values = {**values, "floor": 4 * ROWS, "fresh_safe": 4 * ROWS, "ordered_safe": 4 * ROWS}
        scans = explain(connection, name, values)
        connection.rollback()
    assert visited(scans) <= most + FEW, [(scan["Index Name"], scan["Actual Rows"]) for scan in scans]


@pytest.mark.parametrize("state", STATES)
def test_a_plan_made_for_an_empty_table_serves_a_full_one(database: str, state: str) -> None:
    """A relay plans its statements once, when it starts, and keeps its connection for days."""
    marked: dict[str, Any] = {
        "expected": 100,
        "ids": list(range(1, 101)),
        "message_ids": ["m"] * 100,
        "topic": "t",
    }
    charged: dict[str, Any] = {
        "expected": 100,
        "attempts": [1] * 100,
        "codes": ["C"] * 100,
        "errors": ["e"] * 100,
        "reasons": [None] * 100,
    }
    settled = {
        "settle_published": marked,
        "settle_charged": {
            **charged,
            "ids": marked["ids"],
            "blocks": [False] * 100,
            "delays": [1.0] * 100,
            "skew": 0.0,
        },
        "read_large": {"ids": marked["ids"]},
        "claim_ordered": {"ids": marked["ids"], "key_places": [1] * 100, "bytes": 10**7, "carries": True, "skew": 0.0},
    }
    values = {name: values for name, (values, _) in STATEMENTS.items()} | settled
    with psycopg.connect(database, prepare_threshold=None) as connection:
        connection.execute(statement("enter"), {"search_path": '"public"', "idle_tx_ms": "0", "local": True})
        prepared = {name: prepare(connection, name) for name in values}
        nobody: dict[str, Any] = {name: [] for name in charged} | {"message_ids": [], "key_places": []}
        nobody |= {"ids": [], "blocks": [], "delays": [], "expected": 0}
        for name, each in values.items():
            run(connection, prepared[name], each | (nobody if name in settled else {}))
        with psycopg.connect(database, autocommit=True) as service:
            service.execute("alter table outbox_events set (autovacuum_enabled = false)")
            for filling in STATES[state]:
                service.execute(FILL, {**filling, "rows": ROWS})
            pending = service.execute("select min(id) from outbox_events where published_at is null").fetchone()
        for name, each in values.items():
            if name in settled and (not pending or pending[0] is None):
                continue
            with connection.transaction(force_rollback=True):
                scans = touching(scans_of(connection, prepared[name], each))
            most = 100 if name in settled else STATEMENTS[name][1]
            assert visited(scans) <= most + FEW, (name, [(scan["Index Name"], scan["Actual Rows"]) for scan in scans])


def visited(scans: list[dict[str, Any]]) -> float:
    """How many rows the scans came by."""
    rows = [scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) for scan in scans]
    return float(sum(rows))
