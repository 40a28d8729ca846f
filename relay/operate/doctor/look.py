"""Looking at a database: one statement at a time, each in a transaction that changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from relay.outbox.queue import Queue, counted
from relay.outbox.statements import statement
from relay.postgres.statements import search_path


class Look:
    """Runs the statements of the doctor on one connection, which is in autocommit mode."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema

    async def rows(self, name: str, **values: Any) -> list[dict[str, Any]]:
        """What the statement answers."""
        async with self._transaction():
            cursor = self.connection.cursor(row_factory=dict_row)
            await cursor.execute(statement(f"doctor_{name}"), values or None)
            return await cursor.fetchall()

    async def row(self, name: str, **values: Any) -> dict[str, Any]:
        """The one row that the statement answers."""
        (row,) = await self.rows(name, **values)
        return row

    async def queue(self, most: int) -> Queue:
        """What waits and what failed, as every other command counts it, up to `most`."""
        async with self._transaction():
            return await counted(self.connection, most)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self.connection.transaction():
            await self.connection.execute(statement("doctor_enter"), {"search_path": search_path(self.schema)})
            yield


def span(seconds: float) -> str:
    """A time as people say it."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 -- where tenths begin to matter
