"""Emitting: the ways of each library, and how a service may have set its connection up."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import pytest
import sqlalchemy as sa
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db import connection as django_connection
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from relay import AutocommitError, EmitError, Event, InvalidEventError, emit, emit_async
from tests.support.commands import ROOT
from tests.support.emitters import EMITTERS, alchemy_url, asyncpg_options, django_wrapper
from tests.support.outbox import count, event

REFUSED = "the connection is in autocommit mode and no transaction is open: .* is made; "
UNCHECKED = Event.model_construct(event_type="", aggregate_type="order", aggregate_id="7", data={})


class TestPsycopg:
    """psycopg, with its pipelines and factories."""

    @pytest.mark.parametrize("pipeline", [False, True])
    def test_autocommit_is_refused_outside_a_transaction(self, database: str, *, pipeline: bool) -> None:
        """The event would be promised whether or not the change is made."""
        with psycopg.connect(database, autocommit=True) as connection:
            if pipeline:
                with connection.pipeline():
                    connection.execute("select 1")
                    with pytest.raises(AutocommitError, match=REFUSED + "open one by: with connection.transaction"):
                        emit(connection, event())
                    with connection.transaction():
                        emit(connection, event())
            else:
                with pytest.raises(AutocommitError, match=REFUSED + "open one by: with connection.transaction"):
                    emit(connection, event())
                with connection.transaction():
                    emit(connection, event())
        assert count(database) == 1

    async def test_the_asynchronous_face_behaves_alike(self, database: str) -> None:
        """One event, many, autocommit, a pipeline, a refusal."""
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            with pytest.raises(AutocommitError, match=REFUSED + "open one by: async with connection.transaction"):
                await emit_async(connection, event())
            async with connection.pipeline():
                await connection.execute("select 1")
                with pytest.raises(AutocommitError):
                    await emit_async(connection, event())
                async with connection.transaction():
                    piped = await emit_async(connection, event(0))
            async with connection.transaction():
                single = await emit_async(connection, event(1))
                several = await emit_async(connection, [event(2), event(3, dedup_key="k")])
            with pytest.raises(InvalidEventError, match="outbox_emit: event 0"):
                async with connection.transaction():
                    await emit_async(connection, UNCHECKED)
        sequences = [answer.sequence for answer in (piped, single, *several)]
        assert sequences == sorted(sequences)
        assert count(database) == 4

    @pytest.mark.parametrize(
        "options",
        [
            {"row_factory": dict_row},
            {"cursor_factory": psycopg.ClientCursor},
            {"cursor_factory": psycopg.RawCursor},
            {"prepare_threshold": 0},
            {"prepare_threshold": None},
        ],
        ids=lambda options: "-".join(f"{name}-{getattr(value, '__name__', value)}" for name, value in options.items()),
    )
    def test_the_connection_keeps_its_own_ways(self, database: str, options: dict[str, Any]) -> None:
        """Its factories are for the service's rows, not for ours."""
        with psycopg.connect(database, **options) as connection:
            first, second = emit(connection, [event(1), event(2, data={"percent": "100 %s"})])
            assert second.sequence == first.sequence + 1
            assert isinstance(emit(connection, event(3)).event_id, UUID)

    def test_loaders_of_the_services_own_are_not_asked(self, database: str) -> None:
        """They are for its own values."""

        class Broken(psycopg.adapt.Loader):
            def load(self, data: Any) -> Any:
                raise AssertionError(f"{bytes(data)!r} is no value of the service's")

        with psycopg.connect(database) as connection:
            for name in ("uuid", "int8", "bool", "jsonb"):
                connection.adapters.register_loader(name, Broken)
            assert emit(connection, event()).inserted

    def test_a_connection_of_sql_ascii_has_bytes_for_text(self, database: str) -> None:
        """Its answers are read all the same."""
        with psycopg.connect(database, client_encoding="SQL_ASCII") as connection:
            assert emit(connection, event(data="grüße")).inserted

    def test_it_takes_part_in_a_pipeline(self, database: str) -> None:
        """Together with the change that it announces."""
        with psycopg.connect(database) as connection, connection.pipeline():
            connection.execute("create table orders (id int)")
            connection.execute("insert into orders values (1)")
            assert emit(connection, event()).inserted
        assert count(database) == 1

    async def test_it_takes_part_in_an_asynchronous_pipeline(self, database: str) -> None:
        """The same."""
        async with await psycopg.AsyncConnection.connect(database) as connection:
            async with connection.pipeline():
                await connection.execute("create table orders (id int)")
                assert (await emit_async(connection, event())).inserted
            await connection.commit()
        assert count(database) == 1


class TestPsycopg2:
    """psycopg2, with its factories, its autocommit and its encodings."""

    def test_autocommit_is_refused_outside_a_transaction(self, database: str) -> None:
        """Whether the transaction is opened by hand or by the connection, it counts."""
        connection = psycopg2.connect(database)
        connection.autocommit = True
        with pytest.raises(AutocommitError, match=REFUSED + "set connection.autocommit = False, or open one by"):
            emit(connection, event(1))
        with connection:
            emit(connection, event(2))
        with connection.cursor() as cursor:
            cursor.execute("begin")
            emit(connection, event(3))
            cursor.execute("rollback")
        connection.close()
        assert count(database) == count(database, "aggregate_id = '2'") == 1

    def test_with_connection_rolls_back_in_autocommit_mode_too(self, database: str) -> None:
        """What emit asks first does not commit what it stores."""
        connection = psycopg2.connect(database)
        connection.autocommit = True

        def change() -> None:
            with connection:
                emit(connection, event())
                raise LookupError

        with pytest.raises(LookupError):
            change()
        connection.close()
        assert count(database) == 0

    @pytest.mark.parametrize(
        "factory", [psycopg2.extras.RealDictCursor, psycopg2.extras.NamedTupleCursor, psycopg2.extras.DictCursor]
    )
    def test_the_connection_keeps_its_own_ways(self, database: str, factory: Any) -> None:
        """Its cursor_factory is for the service's rows, and so are its typecasters."""
        connection = psycopg2.connect(database, cursor_factory=factory)
        texts = psycopg2.extensions.new_type((20, 16, 2950), "TEXTS", lambda value, _: f"<{value}>")
        psycopg2.extensions.register_type(texts, connection)
        first, second = emit(connection, [event(1), event(2)])
        assert second.sequence == first.sequence + 1
        assert second.inserted is True
        connection.close()

    def test_a_connection_factory_is_a_connection(self, database: str) -> None:
        """Whatever it does with its own cursors."""
        connection = psycopg2.connect(database, connection_factory=psycopg2.extras.LoggingConnection)
        connection.initialize(logging.getLogger("psycopg2"))
        assert emit(connection, event()).inserted
        connection.close()

    @pytest.mark.parametrize("strings", ["on", "off"])
    def test_backslashes_are_what_they_are(self, database: str, strings: str) -> None:
        """Whatever the session takes them for."""
        connection = psycopg2.connect(database)
        with connection.cursor() as cursor:
            cursor.execute(f"set standard_conforming_strings to {strings}")
            emit(connection, event(data="a\\b'c\\\\u0041"))
            cursor.execute("select payload ->> 'data' from outbox_events")
            assert cursor.fetchone() == ("a\\b'c\\\\u0041",)
        connection.close()

    def test_an_asynchronous_connection_is_refused(self, database: str) -> None:
        """It answers nothing to whoever does not poll it."""
        connection = psycopg2.connect(database, async_=True)
        psycopg2.extras.wait_select(connection)
        with pytest.raises(TypeError, match="no psycopg2 connection in asynchronous mode"):
            emit(connection, event())
        connection.close()


class TestAsyncpg:
    """asyncpg, with its codecs and its transactions."""

    async def test_autocommit_is_refused_outside_a_transaction(self, database: str) -> None:
        """Every connection of asyncpg is in that mode."""
        connection = await asyncpg.connect(**asyncpg_options(database))
        with pytest.raises(AutocommitError, match=REFUSED + "open one by: async with connection.transaction"):
            await emit_async(connection, event())
        await connection.execute("begin")
        await emit_async(connection, event())
        await connection.execute("commit")
        await connection.close()
        assert count(database) == 1

    async def test_a_closed_connection_is_told_by_asyncpg(self, database: str) -> None:
        """And not taken for one without a transaction."""
        connection = await asyncpg.connect(**asyncpg_options(database))
        await connection.close()
        with pytest.raises(asyncpg.InterfaceError, match="connection is closed"):
            await emit_async(connection, event())

    async def test_codecs_of_the_services_own_are_not_asked(self, database: str) -> None:
        """They are for its own values, and so is the class of its records."""

        def broken(value: Any) -> Any:
            raise AssertionError(f"{value!r} is no value of the service's")

        class Strange(asyncpg.Record):  # type: ignore[misc]  # asyncpg has no types
            def __iter__(self) -> Any:
                raise AssertionError(self)

        connection = await asyncpg.connect(**asyncpg_options(database), record_class=Strange)
        for name in ("jsonb", "uuid", "bool", "int8"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=broken, decoder=broken)
        async with connection.transaction():
            answers = await emit_async(connection, [event(1), event(2)])
        await connection.close()
        assert [answer.inserted for answer in answers] == [True, True]


def alchemy_autocommits(database: str) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Any]]]]:
    """Every place where SQLAlchemy is told AUTOCOMMIT, for each of its drivers."""
    options: Any = {"isolation_level": "AUTOCOMMIT"}

    def by_engine(url: sa.URL) -> Any:
        return sa.create_engine(url, poolclass=NullPool, **options).connect()

    def by_engine_options(url: sa.URL) -> Any:
        return sa.create_engine(url, poolclass=NullPool).execution_options(**options).connect()

    def by_connection(url: sa.URL) -> Any:
        return sa.create_engine(url, poolclass=NullPool).connect().execution_options(**options)

    def by_engine_of_session(url: sa.URL) -> Any:
        return Session(sa.create_engine(url, poolclass=NullPool, **options))

    def by_session(url: sa.URL) -> Any:
        session = Session(sa.create_engine(url, poolclass=NullPool))
        session.connection(execution_options=options)
        return session

    def by_driver(url: sa.URL) -> Any:
        connection = sa.create_engine(url, poolclass=NullPool).connect()
        connection.connection.driver_connection.autocommit = True  # type: ignore[union-attr]
        return connection

    for driver in ("psycopg", "psycopg2"):
        url = alchemy_url(database, driver)
        for way in (by_engine, by_engine_options, by_connection, by_engine_of_session, by_session, by_driver):
            yield f"{way.__name__}-{driver}", lambda way=way, url=url: way(url)  # type: ignore[misc]


class TestSQLAlchemy:
    """SQLAlchemy, with its isolation levels, its options and its binds."""

    @pytest.mark.parametrize("way", [name for name, _ in alchemy_autocommits("")])
    def test_autocommit_is_refused_wherever_it_was_set(self, database: str, way: str) -> None:
        """Unless a transaction was opened past SQLAlchemy."""
        with dict(alchemy_autocommits(database))[way]() as connection:
            with pytest.raises(AutocommitError, match=REFUSED + "the isolation level is AUTOCOMMIT"):
                emit(connection, event(1))
            connection.execute(sa.text("begin"))
            emit(connection, event(2))
            connection.execute(sa.text("commit"))
        assert count(database) == count(database, "aggregate_id = '2'") == 1

    @pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
    async def test_autocommit_is_refused_of_the_asynchronous_ones(self, database: str, driver: str) -> None:
        """Of connections, and of sessions."""
        engine = create_async_engine(alchemy_url(database, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection, AsyncSession(engine) as session:
            for given in (connection, session):
                with pytest.raises(AutocommitError, match=REFUSED + "the isolation level is AUTOCOMMIT"):
                    await emit_async(given, event(1))
                with pytest.raises(AutocommitError):
                    await given.run_sync(emit, event(1))
                await given.execute(sa.text("begin"))
                await emit_async(given, event(2))
                await given.execute(sa.text("commit"))
        await engine.dispose()
        assert count(database) == count(database, "aggregate_id = '2'") == 2

    @pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
    async def test_a_transaction_that_has_not_begun_is_one(self, database: str, driver: str) -> None:
        """SQLAlchemy begins it with the first statement, which may be the emit; a level of its own is no AUTOCOMMIT."""
        engine = create_async_engine(alchemy_url(database, driver), poolclass=NullPool, isolation_level="SERIALIZABLE")
        async with engine.begin() as connection:
            await emit_async(connection, event(1))
        async with engine.connect() as connection:
            await emit_async(connection, event(2))
        await engine.dispose()
        assert count(database) == count(database, "aggregate_id = '1'") == 1

    def test_a_pipeline_in_autocommit_mode_is_refused(self, database: str) -> None:
        """What it says of transactions may be out of date."""
        engine = sa.create_engine(alchemy_url(database, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            with driver.transaction(), driver.pipeline(), pytest.raises(AutocommitError):
                emit(connection, event())
        assert count(database) == 0

    @pytest.mark.parametrize("options", [{"stream_results": True}, {"yield_per": 1}], ids=str)
    @pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
    def test_it_is_no_cursor_on_the_server(self, database: str, driver: str, options: dict[str, Any]) -> None:
        """Which would be several statements."""
        engine = sa.create_engine(alchemy_url(database, driver), poolclass=NullPool)
        names = []

        @sa.event.listens_for(engine, "before_cursor_execute")
        def look(_: Any, cursor: Any, *__: Any) -> None:
            names.append(getattr(cursor, "name", None))

        with engine.connect().execution_options(**options) as connection:
            assert len(emit(connection, [event(1), event(2)])) == 2
            connection.commit()
        assert names == [None]
        assert count(database) == 2

    def test_a_session_of_several_binds_is_told_to_choose(self, database: str) -> None:
        """Only the service knows which database has the outbox."""
        engine = sa.create_engine(alchemy_url(database, "psycopg"), poolclass=NullPool)
        orders = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer))
        with Session(binds={orders: engine}) as session:
            with pytest.raises(EmitError, match=r"session.connection\(bind_arguments="):
                emit(session, event())
            emit(session.connection(bind_arguments={"clause": orders}), event())
            session.commit()
        assert count(database) == 1

    def test_other_databases_are_refused_by_their_name(self) -> None:
        """They have no outbox."""
        engine = sa.create_engine("sqlite://")
        with engine.connect() as connection, Session(connection) as session:
            for given in (connection, session):
                with pytest.raises(TypeError, match=r"through psycopg, psycopg2, asyncpg, not on sqlite\+pysqlite"):
                    emit(given, event())
        engine.dispose()

    def test_its_errors_do_not_quote_the_events(self, database: str) -> None:
        """Although they quote the parameters of any other statement."""
        engine = sa.create_engine(alchemy_url(database, "psycopg2"), poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(sa.text("set transaction read only"))
            with pytest.raises(sa.exc.InternalError, match="SQL parameters hidden") as failed:
                emit(connection, event(data="4711-secret"))
        assert "4711-secret" not in str(failed.value)


@pytest.fixture
def django_database(database: str) -> Iterator[Any]:
    """Django's default database, on an empty outbox."""
    wrapper = django_wrapper(database)
    connections[DEFAULT_DB_ALIAS] = wrapper
    yield wrapper
    wrapper.close()
    del connections[DEFAULT_DB_ALIAS]


class TestDjango:
    """Django, with its transactions and what runs behind them."""

    def test_autocommit_is_refused_outside_atomic(self, django_database: Any, database: str) -> None:
        """Which is how Django runs a view, unless it is told otherwise."""
        with pytest.raises(AutocommitError, match=REFUSED + "open one by: with transaction.atomic"):
            emit(django_connection, event(1))
        with transaction.atomic():
            emit(django_connection, event(2))
        django_database.set_autocommit(False)
        emit(django_connection, event(3))
        django_database.commit()
        assert count(database) == count(database, "aggregate_id in ('2', '3')") == 2

    @pytest.mark.usefixtures("django_database")
    def test_on_commit_is_too_late(self, database: str) -> None:
        """The transaction is over."""
        with pytest.raises(AutocommitError, match="and not in on_commit"), transaction.atomic():
            transaction.on_commit(lambda: emit(django_connection, event()))
        assert count(database) == 0

    @pytest.mark.usefixtures("django_database")
    def test_its_wrappers_see_the_statement(self) -> None:
        """Whoever watches or forbids queries does so with this one."""
        seen = []

        def watch(execute: Any, sql: str, *rest: Any) -> Any:
            seen.append(sql)
            return execute(sql, *rest)

        with transaction.atomic(), django_connection.execute_wrapper(watch):
            emit(django_connection, event())
        (statement,) = seen
        assert "outbox_emit" in statement

    @pytest.mark.usefixtures("django_database")
    def test_a_transaction_that_is_to_be_rolled_back_takes_nothing(self, database: str) -> None:
        """Django says so itself."""
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(transaction.TransactionManagementError):
                emit(django_connection, event())
        assert count(database) == 0

    def test_binding_on_the_server_makes_no_difference(self, database: str) -> None:
        """The option of Django's for psycopg."""
        wrapper = django_wrapper(database, server_side_binding=True)
        connections[DEFAULT_DB_ALIAS] = wrapper
        with transaction.atomic():
            assert emit(django_connection, event(data="100 %s")).inserted
        wrapper.close()
        del connections[DEFAULT_DB_ALIAS]

    @pytest.mark.usefixtures("django_database")
    async def test_in_an_event_loop_django_refuses(self) -> None:
        """In its own words."""
        with pytest.raises(SynchronousOnlyOperation):
            emit(django_connection, event())


class Watched:
    """What tools that trace put around a connection: it names that one's class, and asks it for all else."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property  # type: ignore[misc]  # as wrapt has it
    def __class__(self) -> Any:
        return type(self._connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("kind", [kind for kind in EMITTERS if "RunSync" not in kind])
def test_a_connection_that_is_watched_is_one(database: str, kind: str) -> None:
    """Tracing does not stand in the way."""
    emitter = EMITTERS[kind](database)
    run = getattr(emitter, "_run", None)
    watched: Any = Watched(emitter.connection)
    assert (emit(watched, event()) if run is None else run(emit_async(watched, event()))).inserted
    emitter.commit()
    emitter.close()
    assert count(database) == 1


class TestEncodings:
    """A connection that cannot say what the event says."""

    def test_psycopg2_is_told_before_anything_is_sent(self, database: str) -> None:
        """The transaction goes on."""
        connection = psycopg2.connect(database, client_encoding="latin1")
        self._refused(lambda: emit(connection, event(data="4711-secret 😀")))
        emit(connection, event(data="grüße"))
        connection.commit()
        connection.close()
        assert count(database, "payload ->> 'data' = 'grüße'") == 1

    def test_psycopg_is_told_too(self, database: str) -> None:
        """The transaction goes on."""
        with psycopg.connect(database, client_encoding="latin1") as connection:
            self._refused(lambda: emit(connection, event(data="4711-secret 😀")))
            emit(connection, event(data="grüße"))
        assert count(database, "payload ->> 'data' = 'grüße'") == 1

    def test_sqlalchemy_is_told_too(self, database: str) -> None:
        """On psycopg2 and on asyncpg, the transaction goes on."""
        engine = sa.create_engine(alchemy_url(database, "psycopg2"), client_encoding="latin1", poolclass=NullPool)
        with engine.begin() as connection:
            self._refused(lambda: emit(connection, event(data="4711-secret 😀")))
            emit(connection, event(data="grüße"))
        assert count(database, "payload ->> 'data' = 'grüße'") == 1

    def test_asyncpg_is_told_too(self, database: str) -> None:
        """The transaction goes on."""

        async def use() -> None:
            connection = await asyncpg.connect(
                **asyncpg_options(database), server_settings={"client_encoding": "latin1"}
            )
            async with connection.transaction():
                with pytest.raises(EmitError) as refused:
                    await emit_async(connection, event(data="4711-secret 😀"))
                await emit_async(connection, event(data="grüße"))
            await connection.close()
            raise refused.value

        self._refused(lambda: asyncio.run(use()))
        assert count(database, "payload ->> 'data' = 'grüße'") == 1

    def _refused(self, emitting: Callable[[], Any]) -> None:
        with pytest.raises(EmitError, match=r"client_encoding .*; nothing was sent: set it to UTF8") as refused:
            emitting()
        assert refused.value.__suppress_context__


# A service that has no psycopg: what stands for it in sys.modules cannot be imported.
ALONE = """
import sys
sys.modules["psycopg"] = None
import relay
loaded = {"psycopg2", "asyncpg", "sqlalchemy", "django"} & set(sys.modules)
assert not loaded, loaded
event = relay.Event(event_type="a", aggregate_type="b", aggregate_id="c", data="100 %s")
options = eval(sys.argv[1])
"""
PSYCOPG2 = """
import psycopg2
connection = psycopg2.connect(**options)
assert relay.emit(connection, event).inserted
connection.commit()
"""
ASYNCPG = """
import asyncio, asyncpg
async def use():
    connection = await asyncpg.connect(**options)
    async with connection.transaction():
        assert (await relay.emit_async(connection, event)).inserted
    await connection.close()
asyncio.run(use())
"""
SQLALCHEMY = """
import sqlalchemy
engine = sqlalchemy.create_engine("postgresql+psycopg2://", connect_args=options)
with engine.begin() as connection:
    assert relay.emit(connection, event).inserted
assert not {"sqlalchemy.orm", "sqlalchemy.ext.asyncio"} & set(sys.modules)
"""
DJANGO = """
import django
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction
names = {"database": "NAME"}
database = {"ENGINE": "django.db.backends.postgresql"}
database |= {names.get(name, name.upper()): value for name, value in options.items()}
settings.configure(DATABASES={"default": database})
django.setup()
for given in (connection, connections["default"]):
    try:
        relay.emit(given, event)
    except relay.AutocommitError:
        pass
    else:
        raise SystemExit("autocommit")
with transaction.atomic():
    stored = relay.emit(connection, event)
    assert stored.inserted
    try:
        with transaction.atomic():
            relay.emit(connections["default"], event.model_copy(update={"event_id": stored.event_id}))
    except relay.InvalidEventError as error:
        assert error.position == 0
    else:
        raise SystemExit("stored twice")
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("set local lock_timeout to '1ms'")
            relay.emit(connection, event.model_copy(update={"dedup_key": "held"}))
    except OperationalError as error:
        assert error.__cause__.pgcode == "55P03"
    else:
        raise SystemExit("did not wait")
"""


@pytest.mark.parametrize(
    ("library", "program"),
    [("psycopg2", PSYCOPG2), ("asyncpg", ASYNCPG), ("sqlalchemy", SQLALCHEMY), ("django", DJANGO)],
)
def test_a_service_without_libpq_emits_through_the_library_that_it_has(
    database: str, library: str, program: str
) -> None:
    """The others are not loaded, and need not be there."""
    others = {"asyncpg", "sqlalchemy", "django"} - {library}
    check = f"assert not {others!r} & set(sys.modules)"
    with psycopg.connect(database) as holder:
        emit(holder, event(dedup_key="held"))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", ALONE + program + check, repr(asyncpg_options(database))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        holder.rollback()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert count(database) == 1
