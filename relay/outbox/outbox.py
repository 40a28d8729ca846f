"""The relay's side of the table, over one connection at a time."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from relay.outbox.batch import COMMIT, Batch
from relay.outbox.floors import Floors
from relay.outbox.order import Walk
from relay.outbox.statements import search_path

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


class Outbox:
    """The table, over one connection at a time."""

    def __init__(
        self,
        connect: Connect,
        schema: str,
        idle_tx_ms: int,
        skew: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._enter = {
            "search_path": search_path(schema),
            "idle_tx_ms": str(idle_tx_ms),
        }
        self._skew = skew
        self._walk = Walk()
        self.floors = Floors(monotonic)
        self._connection: psycopg.AsyncConnection[Any] | None = None

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Open a transaction; the end of the block commits it.

        When the block or the commit raises, the outcome is unknown: the connection is dropped, with it every lock
        and all that was believed about the rows, and the next claim reads the truth.
        """
        if self._connection is not None and _ended(self._connection):
            await self.close()
        if self._connection is None:
            self._connection = await self._connect()
        connection = self._connection
        try:
            batch = Batch(connection, self._enter, self._skew, self._walk, self.floors)
            yield batch
            await connection.execute(COMMIT)
        except BaseException:  # a cancellation, too, may come while the outcome is unknown
            await self.close()
            raise
        if batch.released:
            self.floors.released()

    async def close(self) -> None:
        """Drop the connection; the server rolls back what it had open."""
        connection, self._connection = self._connection, None
        self._walk = Walk()
        self.floors.restart()
        if connection is not None:
            await connection.close()


def _ended(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has said by now that the session is over: a relay that slept has had it idle for long."""
    try:
        for _ in range(2):  # its last words, and then the end itself
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False
