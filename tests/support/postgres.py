"""Databases for tests: each its own, made from a template in some milliseconds, dropped afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.outbox import schema
from tests.support.waiting import until


@contextmanager
def fresh_database(server_url: str, template: str = "template1", options: LiteralString = "") -> Iterator[str]:
    """Create a database on the server, and drop it with every connection to it at the end."""
    name = f"test_{uuid4().hex}"
    administer(server_url, sql.SQL("create database {} template {} " + options), name, template)
    try:
        yield make_conninfo(server_url, dbname=name)
    finally:
        administer(server_url, sql.SQL("drop database {} with (force)"), name)


@contextmanager
def migrated_template(server_url: str) -> Iterator[str]:
    """Create a database with the newest schema that others are copied from, and answer its name."""
    with fresh_database(server_url) as url:
        with psycopg.connect(url) as connection:
            schema.migrate(connection, "public", schema.newest())
        yield str(conninfo_to_dict(url)["dbname"])


@contextmanager
def held_migrations(url: str, waiting: int) -> Iterator[None]:
    """Hold the lock of migrations until that many others wait for it."""
    count = """
        select count(*) from pg_locks join pg_database on pg_database.oid = database
         where locktype = 'advisory' and not granted and classid = %s and datname = current_database()"""
    with psycopg.connect(url) as connection:
        connection.execute("select pg_advisory_xact_lock(%s, %s)", schema.MIGRATION_LOCK)
        yield
        until(
            lambda: connection.execute(count, [schema.MIGRATION_LOCK[0]]).fetchone() == (waiting,),
            f"{waiting} wait for the lock of migrations",
        )


def administer(server_url: str, statement: sql.SQL, *names: str) -> None:
    """Run one statement that no transaction may surround."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement.format(*map(sql.Identifier, names)))
