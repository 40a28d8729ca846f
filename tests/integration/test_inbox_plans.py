"""Every statement of an inbox with a million finished deliveries: it visits what it answers with, and little else."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from consumers.inbox.session import statement
from relay.dev.stack import Stack
from relay.postgres.statements import numbers, texts
from relay.testing.databases import fresh_database
from tests.support.big_inbox import (
    BLOCKED,
    CONSUMER,
    EXPIRED,
    FINISHED,
    KEYS,
    LIVE,
    READY,
    SCHEDULED,
    SUSPECTS,
    TOKEN,
    TYPES,
    fill,
)
from tests.support.plans import analysed_for_now, nodes, plan_of, prepare, tables

pytestmark = [pytest.mark.slow("fills an inbox with a million rows"), pytest.mark.timeout(300)]

ROWS = 100
ID, READY_INDEX, KEYED, SUSPECT = (f"inbox_deliveries_{name}" for name in ("pkey", "ready", "keyed", "suspect"))
LEASE, EXPIRY = "inbox_leases_pkey", "inbox_leases_expiry"
WHOSE: dict[str, Any] = {"consumer": CONSUMER, "skew": 0.0}
SHARD: dict[str, Any] = {"shard": 0, "shards": 1}
LOOK: dict[str, Any] = {**WHOSE, **SHARD}
BEGIN: dict[str, Any] = {**WHOSE, **SHARD, "token": str(uuid4()), "owner": "host:2:b", "lease": 60.0, "alone": False}
SUSPECTS_FOUND: dict[str, Any] = {**LOOK, "types": texts(TYPES), "most": 10}
WALK: dict[str, Any] = {**WHOSE, **SHARD, "after": "", "most": ROWS}
PAID: dict[str, Any] = {**BEGIN, "types": texts(TYPES[:1]), "rooms": numbers([ROWS]), "most": ROWS}
BOTH: dict[str, Any] = {**BEGIN, "types": texts(TYPES), "rooms": numbers([ROWS // 2, ROWS // 2]), "most": ROWS}
# That are looked at for each delivery, in all indexes that have it and all tables that tell of it. They were 36.6, 8.1,
# 29.7, 14.5, 33.9 and 17.9; read as a whole, the table would be 250.
PAGES = {"claim": 42.0, "walk": 10.0, "settle": 36.0, "renew": 18.0, "recover": 40.0, "receive": 22.0}
FEW_PAGES = 2.0


@pytest.fixture(scope="module")
def filled(stack: Stack, inbox_template: str) -> Iterator[str]:
    """The tables, for tests that commit nothing."""
    with fresh_database(stack.database_url, inbox_template) as url:
        with psycopg.connect(url) as connection:
            fill(connection)
            # Whoever comes first passes what was finished in one go, and leaves word for those behind it.
            enter(connection)
            for name, values in (("claim_ready+begin", BOTH), ("look", LOOK)):
                planned(connection, name, values)
            connection.rollback()
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """A consumer's transaction on them, rolled back."""
    with analysed_for_now(filled), psycopg.connect(filled, prepare_threshold=None) as connection:
        enter(connection)
        yield connection
        connection.rollback()


def enter(connection: psycopg.Connection[Any]) -> None:
    """Make the session fit, as a consumer does."""
    connection.execute(statement("enter"), {"search_path": '"public"', "statement_ms": "60000", "local": True})


def freely(connection: psycopg.Connection[Any], query: str) -> Any:
    """The first row of a query of a test's own, which may be planned in any way."""
    connection.execute("set local enable_seqscan = on")
    connection.execute("set local enable_hashjoin = on")
    row = connection.execute(query.encode()).fetchone()
    enter(connection)
    return row


def visited(plan: dict[str, Any]) -> dict[str, int]:
    """How many rows of the tables a statement looked at, by the index that it found them with."""
    found: dict[str, int] = {}
    for scan in tables(plan):
        rows = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        found[index] = found.get(index, 0) + round(rows)
    return {index: rows for index, rows in found.items() if rows}


def planned(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The plan with which a statement ran; in none is each row of one set compared with each of another."""
    plan = plan_of(connection, prepare(connection, name, statement), values)
    assert not sum(node.get("Rows Removed by Join Filter", 0) for node in nodes(plan)), name
    return plan


def pages(plan: dict[str, Any]) -> float:
    """Those that it looked at for each of a hundred rows, wherever they were; what runs behind the answer included."""
    behind = [each for each in plan["Plans"] if each.get("Subplan Name") in {"CTE told", "CTE leased", "CTE freed"}]
    return sum(int(each["Shared Hit Blocks"]) + int(each["Shared Read Blocks"]) for each in (plan, *behind)) / ROWS


def ids(connection: psycopg.Connection[Any], condition: str, most: int = ROWS) -> list[int]:
    """The first rows of a kind."""
    query = f"select array(select id from inbox_deliveries where {condition} order by id limit {most})"  # noqa: S608
    (found,) = freely(connection, query)
    return list(found)


def owned(connection: psycopg.Connection[Any], condition: str = "state = 'processing'") -> dict[str, Any]:
    """Rows of a kind, as their owner names them."""
    found = ids(connection, condition)
    return {**WHOSE, "ids": numbers(found), "tokens": texts([TOKEN] * len(found))}


def done(named: dict[str, Any], many: int = ROWS) -> dict[str, Any]:
    """What is said of rows whose handlers have returned."""
    constant = {"states": "done", "outcomes": "ok", "rests": "0", "refunds": "0", "defers": "0", "cleared": "t"}
    empty = dict.fromkeys(("results", "codes", "errors", "tickets", "details"), "")
    said = {name: texts([value] * many) for name, value in {**constant, **empty, "whats": "done"}.items()}
    return {**named, **said, "versions": f"{{{','.join(['null'] * many)}}}"}


def arriving(prefix: int) -> dict[str, Any]:
    """A hundred events; those of the prefix 1 have been there for long."""
    event_ids = [f"{prefix:08x}-0000-0000-0000-{n:012x}" for n in range(1, ROWS + 1)]
    return {
        **WHOSE,
        "event_ids": texts(event_ids),
        "event_types": texts([TYPES[0]] * ROWS),
        "event_versions": numbers([1] * ROWS),
        "sequences": numbers(range(ROWS)),
        "ordering_keys": texts([""] * ROWS),
        "shards": numbers([0] * ROWS),
        "message_ids": texts(["m"] * ROWS),
        "envelopes": f"[{','.join(['{}'] * ROWS)}]",
        "attributes": f"[{','.join(['{}'] * ROWS)}]",
    }


def test_a_claim_of_what_is_ready(connection: psycopg.Connection[Any]) -> None:
    """Found one behind the other, and changed by its id; neither the finished ones nor those for tomorrow are seen."""
    plan = planned(connection, "claim_ready+begin", PAID)
    assert visited(plan) == {READY_INDEX: ROWS, ID: ROWS}
    assert pages(plan) < PAGES["claim"]


def test_a_claim_of_two_types(connection: psycopg.Connection[Any]) -> None:
    """Of each as many as it has room for."""
    plan = planned(connection, "claim_ready+begin", BOTH)
    assert visited(plan) == {READY_INDEX: ROWS, ID: ROWS}


def test_a_claim_that_finds_nothing(connection: psycopg.Connection[Any]) -> None:
    """The way down one tree."""
    plan = planned(connection, "claim_ready+begin", {**PAID, "types": texts(["order.lost"])})
    assert visited(plan) == {}
    assert pages(plan) < FEW_PAGES


def test_a_claim_of_the_heads_of_keys(connection: psycopg.Connection[Any]) -> None:
    """By their ids, to lock them and to change them; and of each key the first, which they have to be."""
    heads = numbers(ids(connection, "ordering_key like 'key-%' and state = 'pending'"))
    plan = planned(connection, "claim_heads+begin", {**BEGIN, "ids": heads})
    assert visited(plan) == {ID: 2 * ROWS, KEYED: ROWS}
    assert pages(plan) < PAGES["claim"]


def test_a_claim_of_a_suspect(connection: psycopg.Connection[Any]) -> None:
    """The first ones, and of these one."""
    found = planned(connection, "find_suspects", SUSPECTS_FOUND)
    assert visited(found) == {SUSPECT: 10}
    few = numbers(ids(connection, "suspect")[:10])
    plan = planned(connection, "claim_suspect+begin", {**BEGIN, "alone": True, "ids": few})
    assert visited(plan) == {ID: 1 + 1}
    assert pages(found) + pages(plan) < 2 * FEW_PAGES


def test_the_walk_over_keys_passes_a_blocked_one_in_one_step(connection: psycopg.Connection[Any]) -> None:
    """Twenty thousand wait behind its first. Of each key that is visited two rows: to find it, and its first."""
    plan = planned(connection, "walk_keys", WALK)
    assert visited(plan) == {KEYED: 2 * ROWS}
    assert pages(plan) < PAGES["walk"]


def test_a_look_at_what_waits(connection: psycopg.Connection[Any]) -> None:
    """The first of each type, a hundred suspects at most, and one row with a key."""
    plan = planned(connection, "look", LOOK)
    assert visited(plan) == {READY_INDEX: len(TYPES), SUSPECT: SUSPECTS, KEYED: 1}
    assert pages(plan) < FEW_PAGES


def test_settling(connection: psycopg.Connection[Any]) -> None:
    """By the id: each delivery to lock it and to change it, each lease to end it."""
    plan = planned(connection, "settle", done(owned(connection)))
    assert visited(plan) == {ID: 2 * ROWS, LEASE: ROWS}
    assert pages(plan) < PAGES["settle"]


def test_settling_what_is_settled(connection: psycopg.Connection[Any]) -> None:
    """Looked at once to be locked, once to be told of."""
    plan = planned(connection, "settle", done(owned(connection, "state = 'done'")))
    assert visited(plan) == {ID: 2 * ROWS}


def noted(named: dict[str, Any]) -> dict[str, Any]:
    """That each of them has begun with a stage."""
    said = {"whats": "stage", "details": "{}", "staged": "t", "stages": "upload", "progresses": "5"}
    return {**named, **{name: texts([value] * ROWS) for name, value in said.items()}}


def test_noting(connection: psycopg.Connection[Any]) -> None:
    """By the id: to know that they are their owner's, to lock them, to change them."""
    plan = planned(connection, "note", noted(owned(connection)))
    assert visited(plan) == {ID: 3 * ROWS}
    assert pages(plan) < PAGES["settle"]


def test_renewing(connection: psycopg.Connection[Any]) -> None:
    """By the id, to lock it and to change it."""
    plan = planned(connection, "renew", {**owned(connection), "lease": 60.0})
    assert visited(plan) == {LEASE: 2 * ROWS}
    assert pages(plan) < PAGES["renew"]


def test_renewing_what_is_lost(connection: psycopg.Connection[Any]) -> None:
    """Nobody has these leases: each is looked for twice, and no other is looked at."""
    plan = planned(connection, "renew", {**owned(connection, "state = 'done'"), "lease": 60.0})
    assert visited(plan) == {}
    assert pages(plan) < 2 * 3 + FEW_PAGES


def test_recovering(connection: psycopg.Connection[Any]) -> None:
    """The leases that have expired, the first ones; of a thousand others none is seen."""
    plan = planned(connection, "recover", {**WHOSE, "most": ROWS})
    assert visited(plan) == {EXPIRY: ROWS, ID: 2 * ROWS, LEASE: ROWS}
    assert pages(plan) < PAGES["recover"]


def test_confirming(connection: psycopg.Connection[Any]) -> None:
    """By the id."""
    plan = planned(connection, "confirm", owned(connection, "state = 'done'"))
    assert visited(plan) == {ID: ROWS}
    assert len(tables(plan)) == 1


@pytest.mark.parametrize(("prefix", "stored"), [(99, ROWS), (1, 0)], ids=["new", "known"])
def test_receiving(connection: psycopg.Connection[Any], prefix: int, stored: int) -> None:
    """No table is read: what is there already is found by the index that makes it unique, as it is written."""
    plan = planned(connection, "receive", arriving(prefix))
    assert (visited(plan), round(plan["Actual Rows"])) == ({}, stored)
    assert pages(plan) < PAGES["receive"]


STATEMENTS: dict[str, dict[str, Any]] = {
    "claim_ready+begin": BOTH,
    "claim_heads+begin": {**BEGIN, "ids": "{1,2,3}"},
    "lock_keys": {"ids": "{1,2,3}"},
    "find_suspects": SUSPECTS_FOUND,
    "claim_suspect+begin": {**BEGIN, "ids": "{1,2,3}"},
    "walk_keys": WALK,
    "look": LOOK,
    "settle": done({**WHOSE, "ids": numbers(range(ROWS)), "tokens": texts([TOKEN] * ROWS)}),
    "note": noted({**WHOSE, "ids": numbers(range(ROWS)), "tokens": texts([TOKEN] * ROWS)}),
    "renew": {**WHOSE, "ids": "{1,2,3}", "tokens": texts([TOKEN] * 3), "lease": 60.0},
    "recover": {**WHOSE, "most": ROWS},
    "confirm": {**WHOSE, "ids": "{1,2,3}", "tokens": texts([TOKEN] * 3)},
    "receive": arriving(98),
}


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_every_statement_finds_its_rows_by_index(connection: psycopg.Connection[Any], analysed: bool) -> None:  # noqa: FBT001
    """Whatever Postgres knows of the tables, and although all that it knew has changed since."""
    if analysed:
        connection.execute("analyze inbox_deliveries, inbox_leases, inbox_history")
    connection.execute(
        "update inbox_deliveries set available_at = now() - interval '1 minute' where state = 'pending' "
        "and consumer = %s and ordering_key is null and available_at > now()",
        [CONSUMER],
    )
    for name, values in STATEMENTS.items():
        plan = planned(connection, name, values)
        kinds = {scan["Node Type"] for scan in tables(plan)}
        assert kinds <= {"Index Scan", "Index Only Scan"}, (name, kinds)
        assert pages(plan) < max(PAGES.values()), name


def test_the_tables_are_as_large_as_they_say(connection: psycopg.Connection[Any]) -> None:
    """Or the tests above would show nothing."""
    counts = freely(
        connection,
        "select count(*) filter (where state in ('done', 'failed')), count(*) filter (where state = 'processing'), "
        "count(*) filter (where state = 'pending' and ordering_key is null and not suspect and available_at <= now()), "
        "count(*) filter (where available_at > now()), count(*) filter (where ordering_key = 'blocked'), "
        "count(*) filter (where ordering_key like 'key-%'), count(*) filter (where suspect), "
        "(select count(*) from inbox_leases where expires_at < now()), (select count(*) from inbox_leases) "
        "from inbox_deliveries where consumer = 'billing'",
    )
    assert counts == (
        FINISHED, LIVE + EXPIRED + 1, READY, SCHEDULED, BLOCKED, KEYS, SUSPECTS, EXPIRED, LIVE + EXPIRED + 1,
    )  # fmt: skip
