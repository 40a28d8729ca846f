"""psycopg 3: its connections, synchronous and asynchronous, and what pools put in their place."""

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from relay.adapters.adapter import Adapter, AsyncAdapter, Call, Library, SyncAdapter


def _store(connection: psycopg.Connection[Any], words: str, call: Call) -> list[str | bytes]:
    # Only a sync has a pipeline show whether a transaction is open.
    if connection.autocommit and connection.info.pipeline_status:
        with connection.pipeline() as pipeline:
            pipeline.sync()
    if _would_commit(connection):
        raise call.autocommits("open one by: with connection.transaction()")
    return _texts(connection, call.format, (words,))


def _texts(connection: psycopg.Connection[Any], statement: str, values: tuple[str] | None = None) -> list[str | bytes]:
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return [answer for (answer,) in cursor.execute(statement.encode(), values)]


async def _store_async(connection: psycopg.AsyncConnection[Any], words: str, call: Call) -> list[str | bytes]:
    if connection.autocommit and connection.info.pipeline_status:
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    if _would_commit(connection):
        raise call.autocommits("open one by: async with connection.transaction()")
    return await _texts_async(connection, call.format, (words,))


async def _texts_async(
    connection: psycopg.AsyncConnection[Any], statement: str, values: tuple[str] | None = None
) -> list[str | bytes]:
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement.encode(), values)
        return [answer for (answer,) in await cursor.fetchall()]


def _would_commit(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE


_SYNC = SyncAdapter(_store, _texts)
_ASYNC = AsyncAdapter(_store_async, _texts_async)


def _adapter_of(kind: type) -> Adapter | None:
    if issubclass(kind, psycopg.Connection):
        return _SYNC
    return _ASYNC if issubclass(kind, psycopg.AsyncConnection) else None


def _remedy(given: object) -> str | None:
    if isinstance(given, psycopg.Cursor | psycopg.AsyncCursor):
        return "pass cursor.connection"
    # By name: psycopg_pool need not be there.
    pools = [base.__name__ for base in type(given).__mro__ if base.__module__.partition(".")[0] == "psycopg_pool"]
    if any(name.endswith("ConnectionPool") for name in pools):
        asynchronous = "async " if pools[0].startswith("Async") else ""
        return f"pass one of its connections: `{asynchronous}with pool.connection() as connection:`"
    return None


LIBRARY = Library(_adapter_of, _remedy)
