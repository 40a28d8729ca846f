"""Effects exactly once: a delivery is completed in the transaction that has the effect."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from consumers.dedup.protocol import Begun
from consumers.gather import Gather
from consumers.inbox.inbox import Inbox
from consumers.inbox.rows import Owned
from consumers.inbox.table import MOST_ROWS, Table
from consumers.inbox.words import kept
from idempotency import LeaseLostError
from relay.adapters.adapter import AsyncAdapter, Call, SyncAdapter
from relay.adapters.find import adapter_of, refused, remedy_of
from relay.postgres.connect import conninfo

_TAKES: Final = "ctx.complete takes a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django"
_UNKEPT: Final = "the event would be completed whether or not its effect is there"
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


class InboxEffects:
    """Transactions on connections of the process's own, and completions on anybody's."""

    def __init__(self, inbox: Inbox, table: Table, connections: Connections, schema: str) -> None:
        self._inbox = inbox
        self._table = table
        self._connections = connections
        function = sql.Identifier(schema, "inbox_complete").as_string(None)
        self._call = Call(f"select {function}(\n", _UNKEPT, ")::text")
        self._confirmations: Gather[Owned, bool] = Gather(table.confirm, most=MOST_ROWS, at_once=1)
        self.transaction = connections.transaction
        self.transaction_in_thread = connections.transaction_in_thread
        self.cut = connections.cut

    def complete(self, begun: Begun, connection: Any, result: Any = None) -> Awaitable[None]:
        """Complete it in the connection's transaction; done when this returns, where the connection is synchronous."""
        owned: Owned = begun.token
        adapter = adapter_of(connection)
        if adapter is None:
            raise refused(_TAKES, connection, remedy_of(connection))
        said = json.dumps({"id": owned.id, "token": owned.token, "version": owned.revision})[:-1]
        answer = kept(result)
        said = f'{said}, "result": {answer}}}' if answer else f"{said}}}"
        # Its lease is that transaction's to end: a heartbeat would only find it locked.
        self._inbox.leave(owned)
        begun.completed = True
        match adapter:
            case SyncAdapter(store):
                _owned(owned, store(connection, said, self._call))
                return _Done()
            case AsyncAdapter(store_async):
                return self._awaited(owned, store_async(connection, said, self._call))

    async def confirm(self, begun: Begun) -> bool:
        """Whether that transaction was committed."""
        owned: Owned = begun.token
        ended = await self._confirmations.ask(owned)
        if ended:
            self._inbox.forget(owned)
        return ended

    @staticmethod
    async def _awaited(owned: Owned, answers: Awaitable[Sequence[str | bytes]]) -> None:
        _owned(owned, await answers)


class _Done:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


def _owned(owned: Owned, answers: Sequence[str | bytes]) -> None:
    if list(answers) not in (["true"], [b"true"]):
        raise LeaseLostError(
            f"delivery {owned.id} is no longer this handler's: its lease was over, and somebody else has it or has "
            "completed it; the transaction must be rolled back"
        )


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
