"""Services that emit, each through a kind of connection of its own, driven alike by the tests."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import asyncpg
import django
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db import utils as django_errors
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from relay import emit, emit_async
from relay.testing import EmittedEvent, Outbox


class Emitter(ABC):
    """One connection in a transaction, whatever library it is of."""

    # What a serialization failure is, in the library's own words.
    serialization: tuple[type[Exception], ...]

    @property
    @abstractmethod
    def connection(self) -> Any:
        """What is handed to emit."""

    @abstractmethod
    def execute(self, query: str) -> None:
        """Run a statement of the service's own."""

    @abstractmethod
    def commit(self) -> None:
        """Commit, and be ready for the next transaction."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll back, and be ready for the next transaction."""

    @abstractmethod
    def undone(self) -> AbstractContextManager[None]:
        """A savepoint that is rolled back."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back, and all that belongs to it."""

    def emit(self, events: Any, **options: Any) -> Any:
        """Emit, in the way of the library."""
        return emit(self.connection, events, **options)

    def seen(self, outbox: Outbox) -> list[EmittedEvent]:
        """What a test sees over the connection."""
        return outbox.emitted(connection=self.connection)


class Psycopg(Emitter):
    """psycopg, synchronous."""

    serialization = (psycopg.errors.SerializationFailure,)

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, query: str) -> None:
        self._connection.execute(query.encode())

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def undone(self) -> AbstractContextManager[Any]:
        return self._connection.transaction(force_rollback=True)

    def close(self) -> None:
        self._connection.close()


class Psycopg2(Emitter):
    """psycopg2."""

    serialization = (psycopg2.errors.SerializationFailure,)

    def __init__(self, url: str, **options: Any) -> None:
        self._connection = psycopg2.connect(url, **options)

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, query: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(query)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    @contextmanager
    def undone(self) -> Iterator[None]:
        self.execute("savepoint undone")
        yield
        self.execute("rollback to savepoint undone")

    def close(self) -> None:
        self._connection.close()


class DjangoConnection(Emitter):
    """Django's `connection`, on psycopg."""

    serialization = (django_errors.OperationalError,)

    def __init__(self, url: str) -> None:
        self._wrapper = django_wrapper(url)
        connections[DEFAULT_DB_ALIAS] = self._wrapper
        self._begin()

    def _begin(self) -> None:
        self._atomic = transaction.atomic()
        self._atomic.__enter__()

    @property
    def connection(self) -> Any:
        return connection

    def execute(self, query: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)

    def commit(self) -> None:
        self._atomic.__exit__(None, None, None)
        self._begin()

    def rollback(self) -> None:
        transaction.set_rollback(rollback=True)
        self.commit()

    @contextmanager
    def undone(self) -> Iterator[None]:
        with transaction.atomic():
            yield
            transaction.set_rollback(rollback=True)

    def close(self) -> None:
        transaction.set_rollback(rollback=True)
        self._atomic.__exit__(None, None, None)
        self._wrapper.close()
        del connections[DEFAULT_DB_ALIAS]


class DjangoWrapper(DjangoConnection):
    """One of Django's `connections`."""

    @property
    def connection(self) -> Any:
        return connections[DEFAULT_DB_ALIAS]


def configure_django() -> None:
    """Set Django up without a project, once in a process."""
    if not settings.configured:
        settings.configure(
            DATABASES={DEFAULT_DB_ALIAS: {"ENGINE": "django.db.backends.postgresql"}}, LOGGING_CONFIG=None
        )
        django.setup()


def django_wrapper(url: str, **options: Any) -> Any:
    """A database of Django's."""
    configure_django()
    parts = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {name: parts.get(part) or "" for name, part in names.items()}
    wrapper = connections.create_connection(DEFAULT_DB_ALIAS)
    wrapper.settings_dict = {**wrapper.settings_dict, **database, "OPTIONS": options}
    return wrapper


class AlchemyConnection(Emitter):
    """A connection of SQLAlchemy's."""

    serialization = (sa.exc.DBAPIError,)

    def __init__(self, url: str, driver: str, **options: Any) -> None:
        self.engine = sa.create_engine(alchemy_url(url, driver), poolclass=NullPool, **options)
        self._given: Any = self._opened()

    def _opened(self) -> Any:
        return self.engine.connect()

    @property
    def connection(self) -> Any:
        return self._given

    def execute(self, query: str) -> None:
        self._given.execute(sa.text(query))

    def commit(self) -> None:
        self._given.commit()

    def rollback(self) -> None:
        self._given.rollback()

    @contextmanager
    def undone(self) -> Iterator[None]:
        savepoint = self._given.begin_nested()
        yield
        savepoint.rollback()

    def close(self) -> None:
        self._given.close()
        self.engine.dispose()


class AlchemySession(AlchemyConnection):
    """A session of SQLAlchemy's."""

    def _opened(self) -> Any:
        return Session(self.engine)


class AlchemyScopedSession(AlchemyConnection):
    """What Flask and others have in place of a session."""

    def _opened(self) -> Any:
        return scoped_session(sessionmaker(self.engine))


class Awaited(Emitter):
    """A connection that is awaited, in an event loop of its own."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._run: Callable[[Coroutine[Any, Any, Any]], Any] = self._runner.run
        self._given: Any = self._run(self._opened(url))

    @abstractmethod
    async def _opened(self, url: str) -> Any:
        """What is handed to emit_async."""

    @property
    def connection(self) -> Any:
        return self._given

    def emit(self, events: Any, **options: Any) -> Any:
        return self._run(emit_async(self.connection, events, **options))

    def seen(self, outbox: Outbox) -> list[EmittedEvent]:
        events: list[EmittedEvent] = self._run(outbox.emitted_async(connection=self.connection))
        return events

    def execute(self, query: str) -> None:
        self._run(self._given.execute(query))

    def commit(self) -> None:
        self._run(self._given.commit())

    def rollback(self) -> None:
        self._run(self._given.rollback())

    def close(self) -> None:
        self._run(self._given.close())
        self._runner.close()


class PsycopgAsync(Awaited):
    """psycopg, asynchronous."""

    serialization = (psycopg.errors.SerializationFailure,)

    async def _opened(self, url: str) -> Any:
        return await psycopg.AsyncConnection.connect(url)

    @contextmanager
    def undone(self) -> Iterator[None]:
        savepoint = self._given.transaction(force_rollback=True)
        self._run(savepoint.__aenter__())
        yield
        self._run(savepoint.__aexit__(None, None, None))


class Asyncpg(Awaited):
    """asyncpg."""

    serialization = (asyncpg.SerializationError,)

    async def _opened(self, url: str) -> Any:
        connection = await asyncpg.connect(**asyncpg_options(url))
        await self._begin(connection)
        return connection

    async def _begin(self, connection: Any) -> None:
        self._transaction = connection.transaction()
        await self._transaction.start()

    def commit(self) -> None:
        self._run(self._transaction.commit())
        self._run(self._begin(self._given))

    def rollback(self) -> None:
        self._run(self._transaction.rollback())
        self._run(self._begin(self._given))

    @contextmanager
    def undone(self) -> Iterator[None]:
        savepoint = self._given.transaction()
        self._run(savepoint.start())
        yield
        self._run(savepoint.rollback())


class AsyncpgPooled(Asyncpg):
    """What a pool of asyncpg's hands out."""

    async def _opened(self, url: str) -> Any:
        self._pool = await asyncpg.create_pool(**asyncpg_options(url), min_size=1, max_size=1)
        connection = await self._pool.acquire()
        await self._begin(connection)
        return connection

    def close(self) -> None:
        self._run(self._pool.release(self._given))
        self._run(self._pool.close())
        self._runner.close()


class AlchemyAsyncConnection(Awaited):
    """An asynchronous connection of SQLAlchemy's."""

    serialization = (sa.exc.DBAPIError,)

    def __init__(self, url: str, driver: str, **options: Any) -> None:
        self.engine = create_async_engine(alchemy_url(url, driver), poolclass=NullPool, **options)
        super().__init__(url)

    async def _opened(self, url: str) -> Any:  # noqa: ARG002 -- the engine has it
        return await self.engine.connect()

    def execute(self, query: str) -> None:
        self._run(self._given.execute(sa.text(query)))

    @contextmanager
    def undone(self) -> Iterator[None]:
        savepoint = self._run(self._savepoint())
        yield
        self._run(savepoint.rollback())

    async def _savepoint(self) -> Any:
        return await self._given.begin_nested()

    def close(self) -> None:
        self._run(self._given.close())
        self._run(self.engine.dispose())
        self._runner.close()


class AlchemyAsyncSession(AlchemyAsyncConnection):
    """An asynchronous session of SQLAlchemy's."""

    async def _opened(self, url: str) -> Any:  # noqa: ARG002 -- the engine has it
        return AsyncSession(self.engine)


class AlchemyAsyncScopedSession(AlchemyAsyncConnection):
    """An asynchronous session by scope."""

    async def _opened(self, url: str) -> Any:  # noqa: ARG002 -- the engine has it
        return async_scoped_session(async_sessionmaker(self.engine), scopefunc=lambda: None)


class AlchemyRunSync(AlchemyAsyncConnection):
    """Synchronous code that SQLAlchemy runs on an asynchronous connection."""

    def emit(self, events: Any, **options: Any) -> Any:
        return self._run(self._given.run_sync(emit, events, **options))


class AlchemySessionRunSync(AlchemyAsyncSession, AlchemyRunSync):
    """The same on a session."""


def alchemy_url(url: str, driver: str) -> sa.URL:
    """The URL in SQLAlchemy's form."""
    parts = conninfo_to_dict(url)
    user, password, database = (str(parts[name]) if name in parts else None for name in ("user", "password", "dbname"))
    place: dict[str, str] = {name: str(value) for name, value in parts.items() if name in {"host", "port"}}
    return sa.URL.create(f"postgresql+{driver}", user, password, database=database, query=place)


def plain_url(url: str) -> str:
    """A URL that begins with postgresql://, of whatever form it was."""
    return alchemy_url(url, "psycopg").set(drivername="postgresql").render_as_string(hide_password=False)


def asyncpg_options(url: str) -> dict[str, Any]:
    """The URL in asyncpg's words."""
    names = {"database": "dbname", "user": "user", "password": "password", "host": "host", "port": "port"}
    parts = conninfo_to_dict(url)
    return {name: parts[part] for name, part in names.items() if part in parts}


ALCHEMY = [AlchemyConnection, AlchemySession, AlchemyScopedSession]
ALCHEMY_AWAITED = [
    AlchemyAsyncConnection,
    AlchemyAsyncSession,
    AlchemyAsyncScopedSession,
    AlchemyRunSync,
    AlchemySessionRunSync,
]
EMITTERS: dict[str, Callable[[str], Emitter]] = {
    "Psycopg": Psycopg,
    "PsycopgAsync": PsycopgAsync,
    "Psycopg2": Psycopg2,
    "Asyncpg": Asyncpg,
    "AsyncpgPooled": AsyncpgPooled,
    "DjangoConnection": DjangoConnection,
    "DjangoWrapper": DjangoWrapper,
    **{
        f"{kind.__name__}-{driver}": partial(kind, driver=driver)
        for kind in ALCHEMY
        for driver in ("psycopg", "psycopg2")
    },
    **{
        f"{kind.__name__}-{driver}": partial(kind, driver=driver)
        for kind in ALCHEMY_AWAITED
        for driver in ("psycopg", "asyncpg")
    },
}

# One of each library, and of each way in which it is waited for. The others need not be shown each time.
_EACH_LIBRARY = {
    "Psycopg",
    "PsycopgAsync",
    "Psycopg2",
    "Asyncpg",
    "DjangoConnection",
    "AlchemySession-psycopg2",
    "AlchemyAsyncSession-asyncpg",
    "AlchemyRunSync-psycopg",
}
EACH_LIBRARY = [
    pytest.param(name, marks=[] if name in _EACH_LIBRARY else pytest.mark.slow("a library that another stands for"))
    for name in EMITTERS
]
