"""What is easily taken for the connection of an emit, and the sentence that tells what to pass."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import psycopg2.extensions
import psycopg2.pool
import pytest
from asyncpg.pool import PoolConnectionProxy
from asyncpg.prepared_stmt import PreparedStatement
from asyncpg.transaction import Transaction
from django.core.cache import cache
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.pq import PGconn
from sqlalchemy import Connection, RootTransaction, create_engine
from sqlalchemy.connectors.asyncio import AsyncAdapt_dbapi_connection
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    AsyncSessionTransaction,
    AsyncTransaction,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.pool.base import _ConnectionFairy

from relay import emit, emit_async
from tests.support.emitters import configure_django
from tests.support.outbox import event

SYNC = "emit takes a connection or session of psycopg, psycopg2, SQLAlchemy or Django, not a value of type {}{}"
ASYNC = (
    "emit_async takes an asynchronous connection or session of psycopg, asyncpg or SQLAlchemy, not a value of type {}{}"
)


def like(kind: type, **fields: Any) -> Any:
    """A value of a type, without the server that it would need."""
    bare: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": lambda _: None, **fields})
    return bare.__new__(bare)


def pool(name: str) -> Any:
    """What is called like a pool of psycopg_pool, which is not installed here."""
    kind: Any = type(name, (), {"__module__": "psycopg_pool.pool"})
    return type("Pool", (kind,), {"__module__": "shop"})()


CONNECTION = psycopg.Connection(PGconn())
ASYNC_CONNECTION = psycopg.AsyncConnection(PGconn())
EVENT_FIRST = "; the connection comes first, then the events"

# What is passed to either face in a connection's place, its type, and the remedy.
MISTAKES: list[tuple[Any, str, str]] = [
    (event(), "relay.event.Event", EVENT_FIRST),
    ([event()], "list", EVENT_FIRST),
    ("postgresql:///app", "str", ""),
    (None, "NoneType", ""),
    (psycopg.Cursor(CONNECTION), "psycopg.Cursor", "; pass cursor.connection"),
    (psycopg.AsyncCursor(ASYNC_CONNECTION), "psycopg.AsyncCursor", "; pass cursor.connection"),
    (
        pool("ConnectionPool"),
        "shop.Pool",
        "; pass one of its connections: `with pool.connection() as connection:`",
    ),
    (
        pool("AsyncConnectionPool"),
        "shop.Pool",
        "; pass one of its connections: `async with pool.connection() as connection:`",
    ),
    (like(psycopg2.extensions.cursor), "psycopg2.extensions.cursor", "; pass cursor.connection"),
    (
        like(psycopg2.pool.ThreadedConnectionPool),
        "psycopg2.pool.ThreadedConnectionPool",
        "; pass one of its connections: `connection = pool.getconn()`",
    ),
    (
        like(asyncpg.Pool),
        "asyncpg.pool.Pool",
        "; pass one of its connections: `async with pool.acquire() as connection:`",
    ),
    (like(Transaction), "asyncpg.transaction.Transaction", "; pass the connection that it is of"),
    (like(PreparedStatement), "asyncpg.prepared_stmt.PreparedStatement", "; pass the connection that it is of"),
    (
        create_engine("postgresql+psycopg://"),
        "sqlalchemy.engine.base.Engine",
        "; pass a connection: `with engine.begin() as connection:`",
    ),
    (
        create_async_engine("postgresql+asyncpg://"),
        "sqlalchemy.ext.asyncio.engine.AsyncEngine",
        "; pass a connection: `async with engine.begin() as connection:`",
    ),
    (sessionmaker(), "sqlalchemy.orm.session.sessionmaker", "; pass a session: `with maker.begin() as session:`"),
    (
        async_sessionmaker(),
        "sqlalchemy.ext.asyncio.session.async_sessionmaker",
        "; pass a session: `async with maker.begin() as session:`",
    ),
    (like(RootTransaction), "sqlalchemy.engine.base.RootTransaction", "; pass its connection"),
    (like(AsyncTransaction), "sqlalchemy.ext.asyncio.engine.AsyncTransaction", "; pass its connection"),
    (like(SessionTransaction), "sqlalchemy.orm.session.SessionTransaction", "; pass its session"),
    (
        like(AsyncSessionTransaction),
        "sqlalchemy.ext.asyncio.session.AsyncSessionTransaction",
        "; pass its session",
    ),
    (
        like(_ConnectionFairy),
        "sqlalchemy.pool.base._ConnectionFairy",
        "; pass SQLAlchemy's Connection, or the driver_connection of this one",
    ),
    (
        like(AsyncAdapt_dbapi_connection, info=psycopg.ConnectionInfo(PGconn())),
        "sqlalchemy.connectors.asyncio.AsyncAdapt_dbapi_connection",
        "; pass SQLAlchemy's Connection, or the driver_connection of this one",
    ),
    (connections, "django.db.utils.ConnectionHandler", '; pass one of them, such as `connections["default"]`'),
    (
        like(CursorWrapper),
        "django.db.backends.utils.CursorWrapper",
        "; pass the connection: `from django.db import connection`",
    ),
    (
        transaction.atomic(),
        "django.db.transaction.Atomic",
        "; pass the connection: `from django.db import connection`",
    ),
]
# Connections of the one face that are passed to the other.
SYNCHRONOUS = [CONNECTION, like(psycopg2.extensions.connection), like(Connection), like(Session), like(scoped_session)]
ASYNCHRONOUS = [
    ASYNC_CONNECTION,
    like(asyncpg.Connection),
    like(PoolConnectionProxy),
    like(AsyncConnection),
    like(AsyncSession),
    like(async_scoped_session),
]


def name_of(value: object) -> str:
    """How a test is called that has the value."""
    return type(value).__name__


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[1])
async def test_what_is_no_connection_is_refused_with_what_is_meant(mistake: tuple[Any, str, str]) -> None:
    """By both faces, before anything is asked of it, and without its value."""
    given, name, remedy = mistake
    with pytest.raises(TypeError) as refused:
        emit(given, event())
    with pytest.raises(TypeError) as refused_async:
        await emit_async(given, event())
    assert str(refused.value) == SYNC.format(name, remedy)
    assert str(refused_async.value) == ASYNC.format(name, remedy)


@pytest.mark.parametrize("given", ASYNCHRONOUS, ids=name_of)
def test_emit_sends_asynchronous_connections_to_the_other_face(given: Any) -> None:
    """It cannot wait for them."""
    with pytest.raises(TypeError, match=r"^emit takes a connection .*; call emit_async$"):
        emit(given, event())


@pytest.mark.parametrize("given", SYNCHRONOUS, ids=name_of)
async def test_emit_async_sends_synchronous_connections_to_the_other_face(given: Any) -> None:
    """It would not wait for them."""
    with pytest.raises(TypeError, match=r"^emit_async takes an asynchronous connection .*; call emit$"):
        await emit_async(given, event())


async def test_emit_async_tells_django_how_it_is_used_there() -> None:
    """Its connections belong to threads."""
    for given in (connection, like(BaseDatabaseWrapper)):
        with pytest.raises(
            TypeError, match=r"have sync_to_async run a function .* both within its `with transaction\."
        ):
            await emit_async(given, event())


def test_djangos_other_databases_are_named() -> None:
    """And so is what looks like a database of Django's, and is none."""
    with pytest.raises(TypeError, match=r"^emit takes Django's connections to Postgres, not one of sqlite; "):
        emit(like(BaseDatabaseWrapper, vendor="sqlite"), event())
    configure_django()
    with pytest.raises(TypeError, match=r"^emit takes Django's connections to Postgres, not what is no database; "):
        emit(cache, event())


@pytest.mark.parametrize(
    ("name", "driver"), [("sqlite", "pysqlite"), ("mysql", "psycopg2"), ("postgresql", "pg8000"), ("postgresql", "")]
)
def test_what_sqlalchemy_speaks_to_is_named(name: str, driver: str) -> None:
    """Where it is no Postgres, or by a driver that nobody has tried."""
    dialect = SimpleNamespace(name=name, driver=driver)
    words = "^emit takes SQLAlchemy's connections on Postgres through psycopg, psycopg2, asyncpg, not on "
    with pytest.raises(TypeError, match=words + re.escape(f"{name}+{driver}") + "$"):
        emit(like(Connection, dialect=dialect), event())


class StandIn:
    """What a pool hands out in the place of a psycopg connection."""

    info = psycopg.ConnectionInfo(PGconn())

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back."""


class AsyncStandIn(StandIn):
    """The same of an asynchronous one."""

    async def commit(self) -> None:  # type: ignore[override]  # as AsyncConnection has it
        """Commit."""

    async def rollback(self) -> None:  # type: ignore[override]  # the same
        """Roll back."""


def test_what_stands_for_a_connection_is_none_of_these() -> None:
    """It is known by its info, and goes on to be asked whether a transaction is open."""
    with pytest.raises(AttributeError, match="'StandIn' object has no attribute 'autocommit'"):
        emit(StandIn(), event())
    with pytest.raises(AttributeError, match="'AsyncStandIn' object has no attribute 'autocommit'"):
        asyncio.run(emit_async(AsyncStandIn(), event()))
    with pytest.raises(TypeError, match=r"call emit_async$"):
        emit(AsyncStandIn(), event())  # type: ignore[call-overload]  # what is refused
