"""Tables with old rows in them, and movers in the test's hand."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from relay.kernel.clock import SystemClock
from relay.kernel.runner import Budget
from relay.postgres.connect import connect_async
from relay.upkeep.catalog import Catalog
from relay.upkeep.mover import Moved, Mover
from relay.upkeep.page import Page
from relay.upkeep.position import Scheduled
from relay.upkeep.shelf import Shelf
from relay.upkeep.table import Table
from relay.upkeep.transactions import Transactions
from tests.support import looking
from tests.support.looking import session
from tests.support.plans import tables


@dataclass
class Hurried(SystemClock):
    """A clock that rests for nobody, and notes for how long it should have."""

    rests: list[float] = field(default_factory=list)

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Give others a turn."""
        self.rests.append(seconds)
        await asyncio.sleep(0)
        return event.is_set()


async def move(
    database: str, table: Table, *, until: Callable[[], bool] = lambda: False, clock: SystemClock | None = None
) -> Moved:
    """One run, which ends between two pages when `until` says so."""

    def now() -> float:
        return math.inf if until() else time.monotonic()

    mover = Mover(table, lambda: connect_async(database), Scheduled("public"), clock=clock or Hurried())
    return await mover.run(Budget(time.monotonic() + 60, now, asyncio.Event()))


def do(database: str, *statements: str) -> None:
    """Run SQL."""
    for statement in statements:
        session(database).execute(statement.encode())


def asked(database: str, query: str) -> list[Any]:
    """What a query answers, as one value a row."""
    return [row[0] for row in looking.asked(database, query.encode())]


def where_they_are(database: str, *tables: str) -> dict[str, list[str]]:
    """The rows of each table, as texts, sorted."""
    return {table: asked(database, f"select t::text from {table} as t order by 1") for table in tables}  # noqa: S608 -- a test's own words


async def page_of(database: str, table: Table, months: Sequence[str] = ()) -> Page:
    """The statements of a table's pages; where its rows are archived, these months are there."""
    connection = await connect_async(database)
    try:
        say = Transactions(connection, "catalog_enter")
        described = await Catalog(say, Transactions(connection, "mover_enter")).described(table)
        archived = table.to == "archive"
        shelves = [Shelf(relation, described.role) for relation in described.relations] if archived else []
        for shelf in shelves:
            await shelf.prepare(say)
            await shelf.reach(say, months)
        return Page(described, shelves)
    finally:
        await connection.close()


def visited(connection: psycopg.Connection[Any], statement: sql.Composable) -> dict[str, int]:
    """How many rows of each index a statement looked at."""
    asked = sql.SQL("explain (analyze, format json, timing off) {}").format(statement)
    row = connection.execute(asked).fetchone()
    assert row is not None
    found: dict[str, int] = {}
    for scan in tables(row[0][0]["Plan"]):
        rows = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        found[index] = found.get(index, 0) + round(rows)
    return {index: rows for index, rows in found.items() if rows}
