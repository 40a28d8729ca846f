"""What plays a consumer for those who wait for one, and what tells whether somebody waits."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from consumers.inbox.rows import Claimed, Word
from consumers.inbox.table import Identity, Table
from consumers.waiting import enqueue
from relay.postgres.connect import connect_async
from tests.support.waiting import until_async


class Worker:
    """Does what a consumer does, when the test says so."""

    def __init__(self, database: str) -> None:
        self.database = database

    async def ask(self, key: str = "invoice-42", consumer: str = "invoices", **said: Any) -> int:
        """Enqueue, as a service does."""
        async with await psycopg.AsyncConnection.connect(self.database) as connection:
            return (
                await enqueue(connection, consumer=consumer, event_type="invoice.requested", data=said, key=key)
            ).delivery

    async def claim(self) -> list[Claimed]:
        """Claim whatever is there."""
        async with self._table() as table:
            return await table.claim_ready({"invoice.requested": 500}, 500)

    async def end(self, claimed: list[Claimed], **word: Any) -> None:
        """Say what has become of it; without a word, it is done."""
        said = {"state": "done", "what": "done", "outcome": "ok", "result": '{"number": 42}', **word}
        async with self._table() as table:
            assert set(await table.settle([Word(owned=each.owned, **said) for each in claimed])) == {"settled"}

    async def do(self, **word: Any) -> None:
        """Claim it and end it. A look that marks it as awaited has it for a moment: what is locked is not claimed."""
        claimed: list[Claimed] = []

        async def is_claimed() -> bool:
            claimed.extend(await self.claim())
            return bool(claimed)

        await until_async(is_claimed, "something is claimed")
        await self.end(claimed, **word)

    @asynccontextmanager
    async def _table(self) -> AsyncIterator[Table]:
        identity = Identity(consumer="invoices", owner="test", lease_seconds=60)
        table = Table(lambda: connect_async(self.database), "public", identity)
        yield table
        await table.close()


async def sessions(database: str, query: str) -> list[int]:
    """The server processes of the sessions of `waiter` that have said this last."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        found = await connection.execute(
            "select pid from pg_stat_activity where application_name = 'waiter' and query like %s "
            "and datname = current_database()",
            [query],
        )
        return [pid for (pid,) in await found.fetchall()]


async def awaited(database: str, count: int = 1) -> None:
    """Return when as many deliveries are marked, and the waiting process listens."""

    async def is_so() -> bool:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            found = await connection.execute("select count(*) from inbox_deliveries where awaited")
            marked = await found.fetchone()
        return marked == (count,) and len(await sessions(database, "%listen inbox_finished%")) == 1

    await until_async(is_so, f"{count} are awaited, and somebody listens")


async def holds(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as the condition holds; what is to happen does so in this process."""

    async def is_so() -> bool:
        return condition()

    await until_async(is_so, what)
