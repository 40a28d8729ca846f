"""The relay's side of the table, over as many connections as it has transactions open at once."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from relay.outbox.batch import COMMIT, Batch, Known
from relay.outbox.floors import Floors
from relay.outbox.order import Walk
from relay.outbox.statements import search_path

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


class Outbox:
    """The table. Transactions may be open side by side; what one of them learns of the table, all of them know."""

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
        self._known = Known(Walk(), Floors(monotonic))
        self._free: list[psycopg.AsyncConnection[Any]] = []

    @property
    def floors(self) -> Floors:
        """Where claims start."""
        return self._known.floors

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Open a transaction; the end of the block commits it, where settling has not.

        When the block or the commit raises, the outcome is unknown: the connection is dropped, with it every lock
        and all that was believed about the rows, and the next claim reads the truth.
        """
        connection = await self._connection()
        try:
            batch = Batch(connection, self._enter, self._skew, self._known)
            try:
                yield batch
                if not batch.committed:
                    await connection.execute(COMMIT, prepare=False)
            finally:
                batch.ended()
        except BaseException:  # a cancellation, too, may come while the outcome is unknown
            self._forget()
            await connection.close()
            raise
        self._free.append(connection)
        if batch.released:
            self.floors.released()

    async def close(self) -> None:
        """Drop the connections; no transaction is open."""
        free, self._free = self._free, []
        self._forget()
        for connection in free:
            await connection.close()

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        while self._free:
            connection = self._free.pop()
            if not _ended(connection):
                return connection
            self._forget()
            await connection.close()
        return await self._connect()

    def _forget(self) -> None:
        """A connection is gone: believe nothing that was learned over it, or over another to the same server."""
        self._known.walk.restart()
        self.floors.restart()


def _ended(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has said by now that the session is over: a relay that slept has had it idle for long."""
    try:
        for _ in range(2):  # its last words, and then the end itself
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False
