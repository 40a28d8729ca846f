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
    "refuse_older",
    "require",
    "require_at_least",
    "steps",
    "suitable",
    "version",
]


def migrate(connection: psycopg.Connection[Any], schema: str, target: int | None = None) -> list[Step]:
    """Bring the schema to the target version, all in one transaction; concurrent callers wait for each other.

    Without a target it is this code's own, and the one after it is left as it is: older code that is deployed again
    works on what the newer one has left.

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


def plan(connection: psycopg.Connection[Any], schema: str, target: int | None = None) -> list[Step]:
    """The steps from the version that the database has to the target, as `migrate` has it; none is taken."""
    known = connection.execute("select to_regnamespace(%s)", (sql.Identifier(schema).as_string(connection),))
    if known.fetchone() == (None,):
        raise SchemaError(
            f"database {connection.info.dbname!r} has no schema {schema!r}; "
            f"create it, or name another one in RELAY_SCHEMA"
        )
    current = version(connection, schema)
    if target is None and current == newest() + 1:
        return []
    if current > newest():
        raise _newer(current, schema)
    return steps(current, newest() if target is None else target)


def version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The version that the database has; 0 where there is no outbox."""
    with connection.transaction():
        known = connection.execute(_known(schema)).fetchone()
        row = connection.execute(_newest_applied(schema)).fetchone() if known else None
    return int(row[0]) if row else 0


async def require(connection: psycopg.AsyncConnection[Any], schema: str) -> int:
    """Answer with the schema's version; refuse one that this code was not made for.

    It works on the version before its own and on the one after, so that old and new code run side by side in a deploy.
    The connection is in autocommit mode. Without a transaction around the two statements: a relay that sleeps asks for
    them every minute, and for little else.
    """
    try:
        known = await (await connection.execute(_known(schema))).fetchone()
        row = await (await connection.execute(_newest_applied(schema))).fetchone() if known else None
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not read the outbox in schema {schema!r}: "
            f"{error.diag.message_primary}; its owner gives it what it needs with: python -m relay grants"
        ) from error
    return suitable(int(row[0]) if row else 0, schema, connection.info.dbname)


def suitable(current: int, schema: str, database: str) -> int:
    """The same of a version that is known: answer with it, or raise SchemaError."""
    if current > newest() + 1:
        raise _newer(current, schema)
    if current == 0:
        raise SchemaError(
            f"database {database!r} has no outbox in schema {schema!r}; create it with: python -m relay migrate"
        )
    if current < newest() - 1:
        raise SchemaError(
            f"schema {schema!r} is at version {current}, this code works on {newest() - 1} to {newest() + 1}; "
            "bring it up with: python -m relay migrate"
        )
    return current


async def require_at_least(connection: psycopg.AsyncConnection[Any], schema: str, version: int, what_for: str) -> None:
    """Refuse what an older schema cannot hold; `what_for` names it in the error: "relay forget"."""
    refuse_older(await require(connection, schema), schema, version, what_for)


def refuse_older(current: int, schema: str, version: int, what_for: str) -> None:
    """Raise SchemaError where what is there cannot hold what `what_for` needs."""
    if current < version:
        raise SchemaError(
            f"{what_for} needs version {version} of schema {schema!r}, which is at {current}; "
            "bring it up with: python -m relay migrate"
        )


def _known(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, "outbox_migrations").as_string(None)
    return sql.SQL("select 1 where to_regclass({}) is not null").format(table)


def _newest_applied(schema: str) -> sql.Composed:
    table = sql.Identifier(schema, "outbox_migrations")
    return sql.SQL("select coalesce(max(version), 0) from {}").format(table)


def _newer(current: int, schema: str) -> SchemaError:
    return SchemaError(
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
    except pg.DependentObjectsStillExist as error:
        raise MigrationError(
            f"{error.diag.message_primary}: a table is taken over whose rows become events, or something of your own "
            "uses it; nothing was changed. Give a table back with: python -m relay adopt --table … --release"
        ) from error
    except pg.ObjectInUse as error:
        raise MigrationError(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not change schema {schema!r}: {error.diag.message_primary}; "
            f"grant it create on the schema, or migrate as the owner of the outbox"
        ) from error
