"""The drivers by which services store events, each with a transaction of its own around whatever it is given."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import asyncpg
import django
import psycopg
import psycopg2
import sqlalchemy
from django.conf import settings
from django.db import connection as django_connection
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict

from relay import Event, emit, emit_async

Events = Event | list[Event]


class Driver(Protocol):
    """One of them, connected."""

    def place(self, number: int) -> str:
        """How a statement says where its value of this number goes."""
        ...

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        """Commit one statement."""
        ...

    async def emit(self, events: Events) -> None:
        """Commit events."""
        ...


class _Psycopg:
    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def place(self, number: int) -> str:  # noqa: ARG002 -- they follow each other
        return "%s"

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        with self._connection.transaction():
            self._connection.execute(statement.encode(), values)

    async def emit(self, events: Events) -> None:
        with self._connection.transaction():
            emit(self._connection, events)


class _Psycopg2:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def place(self, number: int) -> str:  # noqa: ARG002 -- they follow each other
        return "%s"

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(statement, values)

    async def emit(self, events: Events) -> None:
        with self._connection:
            emit(self._connection, events)


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def place(self, number: int) -> str:
        return f"${number + 1}"

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        async with self._connection.transaction():
            await self._connection.execute(statement, *values)

    async def emit(self, events: Events) -> None:
        async with self._connection.transaction():
            await emit_async(self._connection, events)


class _SqlAlchemy:
    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    def place(self, number: int) -> str:
        return f":value_{number}"

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        with self._engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement), {f"value_{number}": v for number, v in enumerate(values)})

    async def emit(self, events: Events) -> None:
        with self._engine.begin() as connection:
            emit(connection, events)


class _Django:
    def place(self, number: int) -> str:  # noqa: ARG002 -- they follow each other
        return "%s"

    async def insert(self, statement: str, values: Sequence[object]) -> None:
        with transaction.atomic(), django_connection.cursor() as cursor:
            cursor.execute(statement, values)

    async def emit(self, events: Events) -> None:
        with transaction.atomic():
            emit(django_connection, events)


@asynccontextmanager
async def _by_psycopg(url: str) -> AsyncIterator[Driver]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield _Psycopg(connection)


@asynccontextmanager
async def _by_psycopg2(url: str) -> AsyncIterator[Driver]:
    connection = psycopg2.connect(url)
    try:
        yield _Psycopg2(connection)
    finally:
        connection.close()


@asynccontextmanager
async def _by_asyncpg(url: str) -> AsyncIterator[Driver]:
    connection = await asyncpg.connect(url)
    try:
        yield _Asyncpg(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def _by_sqlalchemy(url: str) -> AsyncIterator[Driver]:
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        yield _SqlAlchemy(engine)
    finally:
        engine.dispose()


@asynccontextmanager
async def _by_django(url: str) -> AsyncIterator[Driver]:
    parts = conninfo_to_dict(url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "USER": parts["user"]}
    database |= {"PASSWORD": parts["password"], "HOST": parts["host"], "PORT": parts["port"]}
    settings.configure(DATABASES={"default": database})
    django.setup()
    # Django forbids its connections where an event loop runs; on this one nobody else waits.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        yield _Django()
    finally:
        django_connection.close()


DRIVERS: Mapping[str, Callable[[str], AbstractAsyncContextManager[Driver]]] = {
    "psycopg": _by_psycopg,
    "psycopg2": _by_psycopg2,
    "asyncpg": _by_asyncpg,
    "SQLAlchemy": _by_sqlalchemy,
    "Django": _by_django,
}
