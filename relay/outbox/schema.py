"""The schema's version: what the database has, what this code needs, and how it gets there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.errors import ConfigurationError, MigrationError, SchemaError
from relay.outbox.ladder import (
    LOCK_TIMEOUT,
    MIGRATION_LOCK,
    MIGRATION_TIMEOUT,
    VERSION_TABLE,
    Step,
    migrations,
    newest,
    steps,
)
from relay.outbox.statements import search_path

# What is known without a database is offered here too.
__all__ = [
    "LOCK_TIMEOUT",
    "MIGRATION_LOCK",
    "MIGRATION_TIMEOUT",
    "Step",
    "migrate",
    "migrations",
    "newest",
    "plan",
    "require",
    "steps",
    "version",
]


def migrate(connection: psycopg.Connection[Any], schema: str, target: int) -> list[Step]:
    """Bring the schema to the target version, all in one transaction; concurrent callers wait for each other.

    Raises SchemaError, ConfigurationError, or MigrationError where events or transactions are in the way.
    """
    with _in_words(connection, schema), connection.transaction():
        _wait_at_most(connection, MIGRATION_TIMEOUT)
        connection.execute("select pg_advisory_xact_lock(%s, %s)", MIGRATION_LOCK)
        _wait_at_most(connection, LOCK_TIMEOUT)
        way = plan(connection, schema, target)
        connection.execute("select set_config('search_path', %s, true)", (search_path(schema),))
        if way:
            connection.execute(VERSION_TABLE)
        for step in way:
            connection.execute(step.statements.encode())
            connection.execute(step.bookkeeping.encode())
    return way


def plan(connection: psycopg.Connection[Any], schema: str, target: int) -> list[Step]:
    """The steps from the version that the database has to the target; none is taken."""
    known = connection.execute("select to_regnamespace(%s)", (sql.Identifier(schema).as_string(connection),))
    if known.fetchone() == (None,):
        raise SchemaError(
            f"database {connection.info.dbname!r} has no schema {schema!r}; "
            f"create it, or name another one in RELAY_SCHEMA"
        )
    current = version(connection, schema)
    _refuse_newer(current, schema)
    return steps(current, target)


def version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The version that the database has; 0 where there is no outbox."""
    with connection.transaction():
        known = connection.execute(_known(schema)).fetchone()
        row = connection.execute(_newest_applied(schema)).fetchone() if known else None
    return int(row[0]) if row else 0


async def require(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Refuse to work on a schema that is not the one this code was written for; the connection is in autocommit mode.

    Without a transaction around the two: a relay that sleeps asks for them every minute, and for little else.
    """
    known = await (await connection.execute(_known(schema))).fetchone()
    row = await (await connection.execute(_newest_applied(schema))).fetchone() if known else None
    current = int(row[0]) if row else 0
    _refuse_newer(current, schema)
    if current == 0:
        raise SchemaError(
            f"database {connection.info.dbname!r} has no outbox in schema {schema!r}; "
            "create it with: python -m relay migrate"
        )
    if current < newest():
        raise SchemaError(
            f"schema {schema!r} is at version {current}, this code needs {newest()}; "
            "bring it up with: python -m relay migrate"
        )


def _known(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, "outbox_migrations").as_string(None)
    return sql.SQL("select 1 where to_regclass({}) is not null").format(table)


def _newest_applied(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, "outbox_migrations")
    return sql.SQL("select coalesce(max(version), 0) from {}").format(table)


def _refuse_newer(current: int, schema: str) -> None:
    if current > newest():
        raise SchemaError(
            f"schema {schema!r} is at version {current}, newer than the {newest()} of this code; "
            "deploy the release that migrated it, or a later one"
        )


def _wait_at_most(connection: psycopg.Connection[Any], limit: str) -> None:
    connection.execute("select set_config('lock_timeout', %s, true)", (limit,))


@contextmanager
def _in_words(connection: psycopg.Connection[Any], schema: str) -> Iterator[None]:
    try:
        yield
    except pg.LockNotAvailable as error:
        raise MigrationError(
            f"another transaction holds what the migration of schema {schema!r} needs, and did not end in time; "
            "nothing was changed. Find it in pg_stat_activity by its xact_start, let it end, and try again"
        ) from error
    except pg.ObjectInUse as error:
        raise MigrationError(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not change schema {schema!r}: {error.diag.message_primary}; "
            f"grant it create on the schema, or migrate as the owner of the outbox"
        ) from error
