"""asyncpg: its connections, and what its pools put in their place."""

from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.prepared_stmt import PreparedStatement
from asyncpg.transaction import Transaction

from relay.adapters.adapter import Adapter, AsyncAdapter, Call, Library


async def _store(connection: Any, words: str, call: Call) -> list[str | bytes]:
    if not connection.is_in_transaction() and not connection.is_closed():
        raise call.autocommits("open one by: async with connection.transaction()")
    return await _texts(connection, call.numbered, words)


async def _texts(connection: Any, statement: str, *values: str) -> list[str | bytes]:
    return [answer for (answer,) in await connection.fetch(statement, *values, record_class=asyncpg.Record)]


_ADAPTER = AsyncAdapter(_store, _texts)


def _adapter_of(kind: type) -> Adapter | None:
    return _ADAPTER if issubclass(kind, asyncpg.Connection | PoolConnectionProxy) else None


def _remedy(given: object) -> str | None:
    match given:
        case asyncpg.Pool():
            return "pass one of its connections: `async with pool.acquire() as connection:`"
        case PreparedStatement() | Transaction():
            return "pass the connection that it is of"
        case _:
            return None


LIBRARY = Library(_adapter_of, _remedy)
