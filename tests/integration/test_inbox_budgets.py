"""What a delivery in an inbox may cost: figures that do not depend on how fast the machine is."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.pq import Trace

from consumers import Consumer, Context, Received
from consumers.inbox.rows import SETTLED, Arrival
from consumers.inbox.session import statement
from consumers.inbox.table import Identity, Table
from consumers.inbox.words import end_of
from consumers.outcome import Done
from consumers.testing import Fate, in_memory
from relay.postgres.connect import connect_async
from tests.support.sessions import count_statements
from tests.support.waiting import until

# One line a message: F from the consumer, B from the server.
_MESSAGE = re.compile(r"^([FB])\t\d+\t(\w+)", re.MULTILINE)
MANY = 1_000
TYPE = "order.paid"
RECEIVE, CLAIM, SETTLE, CONFIRM = "receive", "claim_ready+begin", "settle", "confirm"
BEGIN, EFFECT, COMPLETE, COMMIT = "begin", "effect", "complete", "commit"
# How the server's count of statements calls them: ours by their first lines.
SAID = {
    **{name: statement(name).decode().splitlines()[0] for name in (RECEIVE, CLAIM, SETTLE, CONFIRM)},
    BEGIN: "BEGIN",
    EFFECT: "insert into effects",
    COMPLETE: '"inbox_complete"(',
    COMMIT: "COMMIT",
}
SESSIONS = 3
# Of an event of about 300 bytes; they were 1,179, 1,577, 1,271 and 664. Most of it is the row's next version.
WAL_BYTES = {RECEIVE: 1_250, CLAIM: 1_670, SETTLE: 1_350, COMPLETE: 720}
# Inserted, updated, deleted: the row is written when it is stored, claimed and done, and has an entry of each.
VERSIONS = {"deliveries": (MANY, 2 * MANY, 0), "leases": (MANY, 0, MANY), "history": (3 * MANY, 0, 0)}


@dataclass(frozen=True)
class Spent:
    """What the server has counted of a statement."""

    calls: int
    wal_bytes: float
    """For each of a thousand deliveries."""


def arrivals(many: int = MANY) -> list[Arrival]:
    """Events as they come from a relay: their ids are ordered by time."""
    return [_arrival(number) for number in range(many)]


def _arrival(number: int) -> Arrival:
    event_id = UUID(int=0x019A_0000_0000_7000_8000_0000_0000_0000 + (number << 80) + number)
    envelope = {
        "event_id": str(event_id),
        "event_type": TYPE,
        "version": 1,
        "occurred_at": "2026-01-01T00:00:00Z",
        "actor": None,
        "data": {"number": number, "note": "x" * 200},
    }
    return Arrival(
        event_id=event_id,
        event_type=TYPE,
        version=1,
        sequence=number + 1,
        ordering_key="",
        shard=0,
        message_id=str(number),
        body=json.dumps(envelope).encode(),
        attributes={"event_id": str(event_id), "event_type": TYPE, "sequence": str(number + 1)},
    )


@pytest.fixture
def counting(inbox_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to an inbox whose server counts what it is asked, and that nobody vacuums meanwhile."""
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        count_statements(connection)
        for table in ("inbox_deliveries", "inbox_leases", "inbox_history"):
            connection.execute(f"alter table {table} set (autovacuum_enabled = false)".encode())
        yield connection


def spent(counting: psycopg.Connection[Any]) -> dict[str, Spent]:
    """What each statement has cost, by its name, or by what it is."""
    counted = counting.execute(
        "select query, calls, wal_bytes::float8 from pg_stat_statements "
        "where dbid = (select oid from pg_database where datname = current_database())"
    ).fetchall()
    found = {name: [each for each in counted if said in each[0]] for name, said in SAID.items()}
    return {
        name: Spent(sum(calls for _, calls, _ in rows), sum(wal for *_, wal in rows) / MANY)
        for name, rows in found.items()
        if rows
    }


def versions(counting: psycopg.Connection[Any]) -> dict[str, tuple[int, int, int]]:
    """Rows that were inserted, updated and deleted, by table; a session tells of them when it has ended."""
    rows = counting.execute("select relname, n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables").fetchall()
    return {name.removeprefix("inbox_"): (ins, upd, del_) for name, ins, upd, del_ in rows if ins or upd or del_}


def within(counting: psycopg.Connection[Any], found: dict[str, Spent]) -> None:
    """Check that they have written no more WAL than they may."""
    if counting.execute("show full_page_writes").fetchone() == ("on",):
        pytest.skip("full_page_writes is on in this server: its WAL holds images of pages, whose number is chance")
    assert all(each.wal_bytes < WAL_BYTES[name] for name, each in found.items()), found


async def lived(url: str, log: Path, batch: int) -> Counter[str]:
    """Receive, claim and settle a thousand in batches over connections whose every message libpq writes down."""
    logs: list[Path] = []
    files = ExitStack()

    async def connect() -> psycopg.AsyncConnection[Any]:
        logs.append(log / f"session-{len(logs)}")
        file = files.enter_context(logs[-1].open("w"))
        connection = await connect_async(url)
        connection.pgconn.trace(file.fileno())
        connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS | Trace.REGRESS_MODE)
        return connection

    table = Table(connect, "public", Identity(consumer="billing", owner="host:1:a", lease_seconds=60.0))
    waiting = arrivals()
    with files:
        for first in range(0, MANY, batch):
            assert len(await table.receive(waiting[first : first + batch])) == batch
        for _ in range(0, MANY, batch):
            claimed = await table.claim_ready({TYPE: batch}, batch)
            assert await table.settle([end_of(each.owned, Done(), 1) for each in claimed]) == [SETTLED] * batch
        await table.close()  # with its connections, libpq writes the last of its buffers
    return Counter(name for each in logs for side, name in _MESSAGE.findall(each.read_text()) if side == "B")


@pytest.mark.parametrize("batch", [500, 50])
async def test_a_batch_costs_three_statements_whatever_its_size(
    inbox_database: str, counting: psycopg.Connection[Any], tmp_path: Path, batch: int
) -> None:
    """Received, claimed and begun, settled: one statement and one round trip each, none per delivery.

    For a thousand in batches of 500 that is 6 and 6, and 4.0 kB of WAL for each. Beside them each of three sessions is
    made fit, and has its statement prepared, in one round trip more.
    """
    heard = await lived(inbox_database, tmp_path, batch)

    batches = MANY // batch
    assert heard["CommandComplete"] == 3 * batches + 2 * SESSIONS
    assert heard["ReadyForQuery"] == 3 * batches + SESSIONS
    found = spent(counting)
    assert {name: each.calls for name, each in found.items()} == dict.fromkeys((RECEIVE, CLAIM, SETTLE), batches)
    until(lambda: versions(counting) == VERSIONS, "the versions of rows")
    within(counting, found)


async def test_a_completion_in_its_own_transaction_costs_four_statements(
    inbox_database: str, counting: psycopg.Connection[Any]
) -> None:
    """The handler's begin, effect, completion and commit; nothing is settled besides.

    Ten handlers end one by one, so that claims and confirmations hold few each: fewer than one of either for each
    delivery. The completion writes less WAL than a settle, as it leaves most columns as they are: 664 bytes.
    """
    counting.execute("create table effects (event_id uuid primary key)")
    consumer = Consumer("billing", dedup="inbox", concurrency=10)

    @consumer.on(TYPE)
    async def book(event: Received[Any], ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects (event_id) values (%s)", [event.event_id])
            await ctx.complete(connection)

    async with in_memory(consumer, database=inbox_database) as deliveries:
        for event in [deliveries.publish(TYPE, {"n": n}) for n in range(MANY)]:
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

    found = spent(counting)
    calls = {name: each.calls for name, each in found.items()}
    assert [calls.pop(name) for name in (BEGIN, EFFECT, COMPLETE, COMMIT)] == [MANY] * 4
    assert calls.pop(RECEIVE) <= 3
    assert set(calls) == {CLAIM, CONFIRM}
    assert max(calls.values()) <= MANY
    until(lambda: versions(counting) == {**VERSIONS, "effects": (MANY, 0, 0)}, "the versions of rows")
    within(counting, {COMPLETE: found[COMPLETE]})
