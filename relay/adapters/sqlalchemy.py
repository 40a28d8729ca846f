"""SQLAlchemy 2: its connections and sessions, on psycopg, psycopg2 and asyncpg."""

import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, Transaction, text
from sqlalchemy.engine.interfaces import AdaptedConnection
from sqlalchemy.exc import StatementError, UnboundExecutionError
from sqlalchemy.pool import PoolProxiedConnection

from relay.adapters.adapter import Adapter, AsyncAdapter, Call, Library, SyncAdapter
from relay.errors import EmitError

# What is set for a service's own large results would make a cursor on the server of it, and several statements of one.
_WHOLE = {"stream_results": False, "yield_per": None}
_DRIVERS = ("psycopg", "psycopg2", "asyncpg")
_IDLE = 0  # PQTRANS_IDLE of libpq, in psycopg and psycopg2 alike


def _store(given: Any, words: str, call: Call) -> list[str | bytes]:
    connection = _connection_of(given)
    if _would_commit(connection):
        raise call.autocommits(
            "the isolation level is AUTOCOMMIT: take another, such as READ COMMITTED as isolation_level in the "
            "execution_options, before the transaction begins"
        )
    try:
        return list(connection.execute(_clause(call), {"given": words}, execution_options=_WHOLE).scalars())
    except StatementError as error:
        # Its text would quote the events.
        error.hide_parameters = True
        raise


def _texts(given: Any, statement: str) -> list[str | bytes]:
    connection = _connection_of(given)
    plain = {**_WHOLE, "no_parameters": True}
    return list(connection.exec_driver_sql(statement, execution_options=plain).scalars())


@cache
def _clause(call: Call) -> TextClause:
    return text(call.named)


def _awaited(texts: Callable[..., list[str | bytes]]) -> Callable[..., Awaitable[list[str | bytes]]]:
    async def awaited(given: Any, *words: str | Call) -> list[str | bytes]:
        given = given if hasattr(given, "run_sync") else given.registry()  # an async_scoped_session has the session
        answers: list[str | bytes] = await given.run_sync(texts, *words)
        return answers

    return awaited


def _connection_of(given: Any) -> Connection:
    connection = given if isinstance(given, Connection) else _of_session(given)
    _require_driver(connection)
    return connection


def _of_session(session: Any) -> Connection:
    try:
        connection: Connection = session.connection()
    except UnboundExecutionError as error:
        raise EmitError(
            "the session has no bind, or several and none for all: name the one whose database has the outbox, with "
            '`emit(session.connection(bind_arguments={"mapper": Order}), …)`'
        ) from error
    return connection


def _require_driver(connection: Connection) -> None:
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.driver not in _DRIVERS:
        raise TypeError(
            f"emit takes SQLAlchemy's connections on Postgres through {', '.join(_DRIVERS)}, not on "
            f"{dialect.name}+{dialect.driver}"
        )


def _would_commit(connection: Connection) -> bool:
    """Whether the driver is in autocommit mode, and does not say that a transaction is open all the same."""
    proxied = connection.connection
    dbapi_connection: Any = proxied.dbapi_connection
    if not dbapi_connection.autocommit:
        return False
    driver_connection: Any = proxied.driver_connection
    match connection.dialect.driver:
        case "asyncpg":
            return not driver_connection.is_in_transaction()
        case "psycopg2":
            return bool(driver_connection.get_transaction_status() == _IDLE)
        case _:
            info = driver_connection.info
            # What it says within a pipeline may be out of date.
            return bool(info.pipeline_status or info.transaction_status == _IDLE)


def _loaded(module: str, *names: str) -> tuple[type, ...]:
    """Types of a part of SQLAlchemy. Where that part is not loaded, nothing is of them."""
    part = sys.modules.get(module)
    return tuple(getattr(part, name) for name in names) if part is not None else ()


_SYNC = SyncAdapter(_store, _texts)
_ASYNC = AsyncAdapter(_awaited(_store), _awaited(_texts))
_ASYNCIO = "sqlalchemy.ext.asyncio"


def _adapter_of(kind: type) -> Adapter | None:
    # First: another thread may be loading the other parts.
    if issubclass(kind, Connection):
        return _SYNC
    if issubclass(kind, _loaded("sqlalchemy.orm", "Session", "scoped_session")):
        return _SYNC
    if issubclass(kind, _loaded(_ASYNCIO, "AsyncConnection", "AsyncSession", "async_scoped_session")):
        return _ASYNC
    return None


def _remedy(given: object) -> str | None:
    if isinstance(given, Engine):
        return "pass a connection: `with engine.begin() as connection:`"
    if isinstance(given, _loaded("sqlalchemy.orm", "sessionmaker")):
        return "pass a session: `with maker.begin() as session:`"
    if isinstance(given, _loaded(_ASYNCIO, "AsyncEngine")):
        return "pass a connection: `async with engine.begin() as connection:`"
    if isinstance(given, _loaded(_ASYNCIO, "async_sessionmaker")):
        return "pass a session: `async with maker.begin() as session:`"
    if isinstance(given, (Transaction, *_loaded(_ASYNCIO, "AsyncTransaction"))):
        return "pass its connection"
    if isinstance(
        given, (*_loaded("sqlalchemy.orm", "SessionTransaction"), *_loaded(_ASYNCIO, "AsyncSessionTransaction"))
    ):
        return "pass its session"
    if isinstance(given, PoolProxiedConnection | AdaptedConnection):
        return "pass SQLAlchemy's Connection, or the driver_connection of this one"
    return None


LIBRARY = Library(_adapter_of, _remedy)
