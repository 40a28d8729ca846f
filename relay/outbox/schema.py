"""The schema's version: what the database has, what this code needs, and the steps between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.errors import ConfigurationError, MigrationError, SchemaError
from relay.outbox.statements import search_path

# The advisory lock under which a schema is changed: 'outb', 'migr' in ASCII.
MIGRATION_LOCK = (0x6F757462, 0x6D696772)
# How long the steps may wait for the locks of live traffic: whoever comes after them waits behind them.
LOCK_TIMEOUT = "10s"
# How long a start waits for another one to finish.
MIGRATION_TIMEOUT = "10min"

VERSION_TABLE = """\
create table if not exists outbox_migrations (
    version    integer primary key,
    name       text not null,
    applied_at timestamptz not null default clock_timestamp()
);"""


class Direction(Enum):
    """Which half of a migration a step runs."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered, reversible change of the schema."""

    version: int
    name: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class Step:
    """One half of one migration."""

    migration: Migration
    direction: Direction

    @property
    def statements(self) -> str:
        """The SQL that makes the change."""
        return self.migration.up if self.direction is Direction.UP else self.migration.down

    @property
    def bookkeeping(self) -> str:
        """The SQL that records it; both values come from the name of our own file."""
        if self.direction is Direction.DOWN:
            if self.migration is migrations()[0]:
                return "drop table outbox_migrations;"
            return f"delete from outbox_migrations where version = {self.migration.version};"  # noqa: S608 -- an int
        values = f"({self.migration.version}, '{self.migration.name}')"
        return f"insert into outbox_migrations (version, name) values {values};"  # noqa: S608 -- and its name

    def __str__(self) -> str:
        return f"{self.direction.value:<4} {self.migration.version:04d} {self.migration.name}"


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration that this code knows, in order."""
    folder = files("relay.outbox") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".up.sql"))
    found = []
    for name in names:
        stem = name.removesuffix(".up.sql")
        version, _, title = stem.partition("_")
        found.append(
            Migration(
                version=int(version),
                name=title,
                up=(folder / name).read_text(encoding="utf-8"),
                down=(folder / f"{stem}.down.sql").read_text(encoding="utf-8"),
            )
        )
    return tuple(found)


def newest() -> int:
    """The version that this code was written for."""
    return migrations()[-1].version


def steps(current: int, target: int) -> list[Step]:
    """The way from one version to another, in either direction."""
    for wanted in (current, target):
        if not 0 <= wanted <= newest():
            raise ConfigurationError(f"there is no schema version {wanted}; this code knows 0 to {newest()}")
    if target >= current:
        return [Step(m, Direction.UP) for m in migrations() if current < m.version <= target]
    return [Step(m, Direction.DOWN) for m in reversed(migrations()) if target < m.version <= current]


def script(schema: str, current: int, target: int) -> str:
    """The same way as one SQL script, for those who let nobody but psql change their schema."""
    way = steps(current, target)
    if not way:
        raise ConfigurationError(f"there is no step from schema version {current} to {target}")
    parts = [
        f"-- outbox-relay: schema version {current} to {target}, in one transaction. Run it with:",
        "-- psql --set ON_ERROR_STOP=1 --file outbox.sql",
        "begin isolation level read committed;",
        f"set local search_path to {search_path(schema)};",
        f"set local lock_timeout to '{LOCK_TIMEOUT}';",
        f"select pg_advisory_xact_lock({MIGRATION_LOCK[0]}, {MIGRATION_LOCK[1]});",
        VERSION_TABLE,
    ]
    for step in way:
        parts += [f"-- {step}", step.statements.strip(), step.bookkeeping]
    return "\n\n".join([*parts, "commit;"]) + "\n"


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
    current = await require(connection, schema)
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
    except pg.ObjectInUse as error:
        raise MigrationError(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not change schema {schema!r}: {error.diag.message_primary}; "
            f"grant it create on the schema, or migrate as the owner of the outbox"
        ) from error
