"""The plans of what operators ask of an inbox, pinned at 200,000 deliveries whose statistics are wrong."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

from consumers.inbox.operate.choice import Choice, State
from consumers.inbox.operate.deliveries import REACH, _road, _values
from consumers.inbox.operate.rows import Page
from consumers.inbox.session import statement
from relay.dev.stack import Stack
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import prepared
from relay.testing.databases import fresh_database
from tests.support.plans import analysed_for_now, nodes

pytestmark = pytest.mark.slow("fills an inbox with a million rows")

ROWS = 200_000
FILL = """
insert into inbox_deliveries (consumer, event_id, event_type, envelope, state, outcome, token, ordering_key, suspect,
                              finished_at, error_code, error)
select case when n %% 10 = 0 then 'audit' else 'billing' end, md5(n::text)::uuid, 'order.' || n %% 7, '{}', state,
       case state when 'done' then 'ok' when 'failed' then case when n %% 3 = 0 then 'discarded' else 'dead' end end,
       case when state = 'processing' then gen_random_uuid() end, case when n %% 3 = 0 then 'k' || n %% 97 end,
       state = 'pending' and n %% 5 = 0, case when state in ('done', 'failed') then now() end,
       case when state = 'failed' then 'GONE' end, case when state = 'failed' then 'it is gone' end
  from generate_series(1, %s) as n,
       lateral (select case when n %% 1000 = 1 then 'processing' when n %% 100 = 3 then 'sent'
                            when n %% 50 in (5, 6) then 'pending' when n %% 50 in (7, 8) then 'failed'
                            else 'done' end as state) as known
"""
LEASE = """
insert into inbox_leases (delivery_id, consumer, token, expires_at)
select id, consumer, token, now() + interval '1 minute' from inbox_deliveries where state = 'processing'
"""
OF_STATE = {
    State.PENDING: {"inbox_deliveries_ready", "inbox_deliveries_keyed", "inbox_deliveries_suspect"},
    State.PROCESSING: {"inbox_leases_expiry"},
    State.SENT: {"inbox_deliveries_sent"},
    State.FAILED: {"inbox_deliveries_failed"},
    State.DISCARDED: {"inbox_deliveries_discarded"},
}


@pytest.fixture(scope="module")
def filled(stack: Stack, inbox_template: str) -> Iterator[str]:
    """A database with deliveries in every state, for tests that commit nothing."""
    with fresh_database(stack.database_url, inbox_template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("alter table inbox_deliveries set (autovacuum_enabled = false)")
            connection.execute(FILL, (ROWS,))
            connection.execute(LEASE)
            connection.execute(
                "insert into inbox_history (delivery_id, what) select id, 'created' from inbox_deliveries"
            )
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """An operator's session on it, rolled back."""
    with analysed_for_now(filled), psycopg.connect(filled, prepare_threshold=None) as connection:
        entering = {"search_path": '"public"', "local": True, "statement_ms": "10000"}
        ClientCursor(connection).execute(statement("enter"), entering)
        yield connection
        connection.rollback()


def scans(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of the plan that read a table, of one that is prepared as a session does it."""
    text, parameters = prepared(statement, name)
    cursor = ClientCursor(connection)
    cursor.execute(text.encode())
    listed = f"({', '.join(['%s'] * len(parameters))})" if parameters else ""
    called = f"explain (analyze, format json, timing off) execute {name.replace('+', '_')}{listed}"
    cursor.execute(called.encode(), [values[each] for each in parameters])
    ((plan,),) = cursor.fetchall()
    found = nodes(plan[0]["Plan"])
    return [node for node in found if node["Node Type"].endswith("Scan") and "Relation Name" in node]


def walked(connection: psycopg.Connection[Any], choice: Choice, answer: str, page: Page) -> dict[str, int]:
    """How many rows a part of a walk looked at, by the index that it found them with."""
    values = {
        **_values(choice),
        "consumers": texts([choice.consumer or "billing"]),
        "way": -1 if page.newest else 1,
        "after": page.after or (2**63 - 1 if page.newest else 0),
        "reach": REACH,
        "rows": page.rows,
        "skew": 0.0,
    }
    return visited(scans(connection, f"{_road(choice, page)}+deliveries_wanted+{answer}", values))


def visited(found: list[dict[str, Any]]) -> dict[str, int]:
    """The rows that scans looked at, by index."""
    rows: dict[str, int] = {}
    for scan in found:
        looked_at = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        rows[index] = rows.get(index, 0) + round(looked_at)
    return {index: count for index, count in rows.items() if count}


@pytest.mark.parametrize("answer", ["deliveries_listed", "deliveries_counted"])
@pytest.mark.parametrize("state", OF_STATE, ids=lambda state: state.value)
def test_a_state_is_read_through_its_own_index(connection: psycopg.Connection[Any], state: State, answer: str) -> None:
    """What is done, most of the table by far, is not looked at; and each that is wanted is looked up once."""
    found = walked(connection, Choice(consumer="billing", states=frozenset([state])), answer, Page(51, newest=True))
    looked_up = found.pop("inbox_deliveries_pkey")
    (count,) = connection.execute(
        "select count(*) from inbox_deliveries where consumer = 'billing' and "
        "case when outcome = 'discarded' then 'discarded' else state end = %s",
        [state.value],
    ).fetchone() or (0,)
    assert found.keys() == OF_STATE[state]
    assert looked_up == min(count, REACH)
    # Of keyed ones what runs is in the index of what waits.
    assert sum(found.values()) <= count * 1.2


@pytest.mark.parametrize("page", [Page(51, newest=True), Page(51), Page(51, newest=True, after=100_000)], ids=str)
@pytest.mark.parametrize("states", [frozenset(), frozenset([State.DONE])], ids=["any", "done"])
def test_all_deliveries_are_walked_part_by_part(
    connection: psycopg.Connection[Any], page: Page, states: frozenset[State]
) -> None:
    """By the primary key, with no offset that grows, and no further than its reach whatever is wanted of them."""
    for answer in ("deliveries_listed", "deliveries_counted"):
        choice = Choice(consumer="audit", states=states, codes=["NOBODY"], event_types=["a.*"], error="x")
        assert walked(connection, choice, answer, page) == {"inbox_deliveries_pkey": 2 * REACH}


def test_names_are_looked_up_one_by_one(connection: psycopg.Connection[Any]) -> None:
    """Ids by the primary key, event ids by the index that keeps them apart."""
    event_ids = [row[0] for row in connection.execute("select event_id from inbox_deliveries where id in (1, 2, 3)")]
    found = walked(connection, Choice(ids=[7, 8], event_ids=event_ids), "deliveries_listed", Page(500))
    assert found == {"inbox_deliveries_unique": 3, "inbox_deliveries_pkey": 5}


def test_consumers_are_found_by_a_loose_walk(connection: psycopg.Connection[Any]) -> None:
    """One step each."""
    found = scans(connection, "consumers", {})
    assert visited(found) == {"inbox_deliveries_unique": 2}


def test_a_delivery_is_shown_by_its_id(connection: psycopg.Connection[Any]) -> None:
    """Its lease and its history as well."""
    (running,) = connection.execute("select min(delivery_id) from inbox_leases").fetchone() or (0,)
    shown = visited(scans(connection, "delivery_shown", {"id": running, "envelope": True}))
    assert shown == {"inbox_deliveries_pkey": 1, "inbox_leases_pkey": 1}
    assert visited(scans(connection, "delivery_history", {"id": running})) == {"inbox_history_pkey": 1}


@pytest.mark.parametrize("action", ["retry", "discard"])
def test_acting_looks_deliveries_up_by_id(connection: psycopg.Connection[Any], action: str) -> None:
    """Once to lock and once to change; of those that are left alone once more, to say why."""
    chosen = connection.execute(
        "select id, state, finished_at::text from inbox_deliveries "
        "where (state = 'failed' and outcome = 'dead') or state = 'processing' order by id limit 500"
    ).fetchall()
    busy = sum(state == "processing" for _, state, _ in chosen)
    values = {
        "ids": numbers(row[0] for row in chosen),
        "states": texts([row[1] for row in chosen]),
        "finished": texts([row[2] or "" for row in chosen]),
        "by": "me",
        "why": None,
        "skew": 0.0,
    }
    assert busy
    found = visited(scans(connection, f"deliveries_{action}", values))
    assert found.keys() == {"inbox_deliveries_pkey"}
    assert 2 * (500 - busy) <= found["inbox_deliveries_pkey"] <= 2 * 500


def test_the_first_of_a_key_is_one_step_however_many_wait_behind_it(connection: psycopg.Connection[Any]) -> None:
    """In the walk, and when it is claimed: what is processed stands before what waits."""
    walk = {"consumer": "billing", "after": "", "most": 20, "shards": 1, "shard": 0, "skew": 0.0}
    assert visited(scans(connection, "walk_keys", walk)) == {"inbox_deliveries_keyed": 2 * 20}
    heads = connection.execute(
        "select min(id) from inbox_deliveries where consumer = 'billing' and state = 'pending' and not suspect "
        "and ordering_key is not null group by ordering_key limit 20"
    )
    token = "00000000-0000-0000-0000-000000000001"  # noqa: S105 -- no secret: it names a claim
    claim = {"shards": 1, "shard": 0, "token": token, "owner": "o", "lease": 60.0, "alone": False, "skew": 0.0}
    found = visited(scans(connection, "claim_heads+begin", {**claim, "ids": numbers(row[0] for row in heads)}))
    assert found.keys() == {"inbox_deliveries_pkey", "inbox_deliveries_keyed"}
    assert sum(found.values()) <= 3 * 20


def test_the_plans_are_the_same_once_the_tables_were_analysed(connection: psycopg.Connection[Any]) -> None:
    """With statistics that fit, as some time after autovacuum has come by."""
    connection.execute("analyze inbox_deliveries; analyze inbox_leases")
    failed = Choice(consumer="billing", states=frozenset([State.FAILED]))
    assert walked(connection, failed, "deliveries_listed", Page(51)).keys() == {
        "inbox_deliveries_failed",
        "inbox_deliveries_pkey",
    }
    everything = Choice(consumer="audit", codes=["NOBODY"])
    assert walked(connection, everything, "deliveries_counted", Page(51)) == {"inbox_deliveries_pkey": 2 * REACH}
