"""A database that a test gives back is as new for the next, or is not handed on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from relay import emit
from tests.support.databases import Databases, databases
from tests.support.looking import asked, stop_looking
from tests.support.outbox import event
from tests.support.waiting import until

OIDS = "select oid from pg_database where datname = current_database()"


@pytest.fixture
def handed_on(outbox_postgres_url: str, outbox_template: str) -> Iterator[Databases]:
    """Databases that no other test has."""
    with databases(outbox_postgres_url, outbox_template) as made:
        yield made


def test_rows_numbers_statistics_and_sessions_are_gone(handed_on: Databases) -> None:
    """What a template has stays; the next test's first event has the number that a first event has."""
    with handed_on.handed() as url:
        first = asked(url, OIDS)
        left = psycopg.connect(url)  # a test that forgets one, in the middle of a transaction
        emit(left, [event(number) for number in range(3)])
        left.commit()
        emit(left, event())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("analyze outbox_events")
    with handed_on.handed() as url:
        assert asked(url, OIDS) == first
        assert asked(url, "select count(*) from outbox_events") == [(0,)]
        assert asked(url, "select count(*) > 0 from outbox_migrations") == [(True,)]
        assert asked(url, "select count(*) from pg_statistic where starelid = 'outbox_events'::regclass") == [(0,)]
        assert asked(url, "select reltuples from pg_class where relname = 'outbox_events'") == [(-1.0,)]
        assert asked(url, "select n_tup_ins from pg_stat_user_tables where relname = 'outbox_events'") == [(0,)]
        with psycopg.connect(url) as connection:
            assert emit(connection, event()).sequence == 1
    with pytest.raises(psycopg.OperationalError):
        left.execute("select 1")
    left.close()


@pytest.mark.slow("makes two databases for every kind of change")
@pytest.mark.parametrize(
    "change",
    [
        "create table mine (id int)",
        "create schema mine",
        "alter table outbox_events add column mine int",
        "alter table outbox_events set (autovacuum_enabled = false)",
        "alter table outbox_events disable trigger user",
        "alter table outbox_events enable row level security",
        "alter table outbox_events add constraint mine check (true)",
        "create index mine on outbox_events (created_at)",
        "drop index outbox_events_fresh",
        "create function mine() returns int language sql return 1",
        "alter function outbox_emit owner to current_user; alter function outbox_emit(jsonb) cost 7",
        "grant select on outbox_events to public",
        "grant update (topic) on outbox_events to public",
        "grant create on schema public to public",
        "revoke execute on all functions in schema public from public",
        "create extension pg_stat_statements",
        "create type mine as enum ('a')",
        "create view mine as select 1",
        "create sequence mine",
        "comment on table outbox_events is 'mine'",
        'create collation mine from "C"',
        "create operator === (leftarg = int, rightarg = int, procedure = int4eq)",
        "create cast (int as point) with inout",
        "create foreign data wrapper mine; create server mine foreign data wrapper mine",
        "select lo_create(0)",
        "alter index outbox_events_fresh set (fillfactor = 70)",
        "delete from outbox_migrations",
        "update outbox_migrations set applied_at = '2000-01-01'",
        "alter database {} set work_mem = '1MB'",
        "alter database {} connection limit 3",
        "alter database {} allow_connections false",
        "drop database {} with (force)",
    ],
)
def test_one_of_which_more_than_rows_was_changed_is_not_handed_on(
    handed_on: Databases, outbox_postgres_url: str, change: str
) -> None:
    """Whatever it was; a test need not say so."""
    with handed_on.handed() as url:
        first = asked(url, OIDS)
        name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
        server = outbox_postgres_url if " database " in change else url
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL(change).format(name))
    with handed_on.handed() as url:
        assert asked(url, OIDS) != first


def test_a_test_may_have_two(handed_on: Databases) -> None:
    """One that is in use is handed to nobody else."""
    with handed_on.handed() as one, handed_on.handed() as other:
        assert one != other


def test_a_session_is_not_ended_in_the_middle_of_an_answer(database: str) -> None:
    """What a thread asks beside the end of a test is answered; its socket is not given to another session."""
    # A connection that is closed ends what waits in the threads, also where an assertion fails.
    with ThreadPoolExecutor(2) as threads, psycopg.connect(database, autocommit=True) as holder:
        holder.execute("select pg_advisory_lock(7)")
        answer = threads.submit(asked, database, "select pg_advisory_lock(7) is not null")
        waiting = "select from pg_locks where locktype = 'advisory' and not granted and objid = 7"
        until(lambda: holder.execute(waiting).fetchone() is not None, "the thread waits for its answer")
        ending = threads.submit(stop_looking)
        until(ending.running, "the sessions are being ended")
        holder.execute("select pg_advisory_unlock(7)")
        assert answer.result() == [(True,)]
        ending.result()
