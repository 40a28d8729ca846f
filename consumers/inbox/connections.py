"""Connections for the transactions of handlers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from consumers.backlog import Spent
from relay.postgres.connect import conninfo

# How long a handler waits for a connection that others have; shorter than any handler's own time.
_WAIT_SECONDS: Final = 20.0
# A pooler makes up another process than the one that is there.
_WHO: Final = "select pg_backend_pid()"


class Connections:
    """Those for `ctx.transaction()`: made when they are needed, for coroutines and for threads."""

    def __init__(self, url: str, app: str, most: int) -> None:
        self._conninfo = conninfo(url, app)
        self._most = most
        self._is_cut = False
        self._making = threading.Lock()
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] | None = None
        self._thread_pool: ConnectionPool[psycopg.Connection[Any]] | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """One, in a transaction that the end of the block commits."""
        self._refuse_cut()
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self._conninfo,
                min_size=0,
                max_size=self._most,
                timeout=_WAIT_SECONDS,
                open=False,
                check=_alive_async,
                configure=_prepare_nothing_behind_a_pooler_async,
            )
            await self._pool.open()
        async with self._pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction_in_thread(self) -> Iterator[psycopg.Connection[Any]]:
        """The same for a thread."""
        self._refuse_cut()
        with self._making:  # handlers come from threads of their own, several at once
            if self._thread_pool is None:
                self._thread_pool = ConnectionPool(
                    self._conninfo,
                    min_size=0,
                    max_size=self._most,
                    timeout=_WAIT_SECONDS,
                    open=True,
                    check=_alive,
                    configure=_prepare_nothing_behind_a_pooler,
                )
        with self._thread_pool.connection() as connection:
            yield connection

    @property
    def spent(self) -> Spent:
        """How many are out."""
        stats = [pool.get_stats() for pool in (self._pool, self._thread_pool) if pool is not None]
        return Spent(
            in_use=sum(each["pool_size"] - each["pool_available"] for each in stats),
            waiting=sum(each["requests_waiting"] for each in stats),
        )

    def cut(self) -> None:
        """Give out none any more. A handler that has one is cancelled, which rolls its transaction back."""
        self._is_cut = True

    def _refuse_cut(self) -> None:
        if self._is_cut:
            raise OSError("the connections are cut")

    async def close(self) -> None:
        """End them all."""
        if self._pool is not None:
            await self._pool.close(timeout=1.0)
        if self._thread_pool is not None:
            await asyncio.to_thread(self._thread_pool.close, 1.0)


async def _prepare_nothing_behind_a_pooler_async(connection: psycopg.AsyncConnection[Any]) -> None:
    """The next transaction may be in another session of the server, which knows nothing of what was prepared."""
    await connection.set_autocommit(True)
    answers = await connection.execute(_WHO)
    if await answers.fetchone() != (connection.info.backend_pid,):
        connection.prepare_threshold = None
    await connection.set_autocommit(False)


def _prepare_nothing_behind_a_pooler(connection: psycopg.Connection[Any]) -> None:
    """The same for a thread's."""
    connection.autocommit = True
    if connection.execute(_WHO).fetchone() != (connection.info.backend_pid,):
        connection.prepare_threshold = None
    connection.autocommit = False


async def _alive_async(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise where the server has ended the session: a handler must not pay for a restart that was before it."""
    _look(connection)


def _alive(connection: psycopg.Connection[Any]) -> None:
    """Raise where the server has ended the session."""
    _look(connection)


def _look(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    for _ in range(2):  # its last words, and then the end itself
        connection.pgconn.consume_input()
