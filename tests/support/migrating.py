"""Migrations that are held up."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from relay.outbox import schema
from tests.support.waiting import until


@contextmanager
def held_migrations(url: str, waiting: int, lock: tuple[int, int] = schema.MIGRATION_LOCK) -> Iterator[None]:
    """Hold the lock of migrations until that many others wait for it."""
    count = """
        select count(*) from pg_locks join pg_database on pg_database.oid = database
         where locktype = 'advisory' and not granted and classid = %s and datname = current_database()"""
    with psycopg.connect(url) as connection:
        connection.execute("select pg_advisory_xact_lock(%s, %s)", lock)
        yield
        until(
            lambda: connection.execute(count, [lock[0]]).fetchone() == (waiting,),
            f"{waiting} wait for the lock of migrations",
        )
