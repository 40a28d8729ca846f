"""Who may do what with the outbox: the rights of its three roles, as SQL, and given to them."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.rows import dict_row

from relay.errors import ConfigurationError, MigrationError
from relay.outbox import schema as versions
from relay.outbox.statements import statement

# Before it there are not all of these tables.
FIRST_VERSION = 6
LOCK_TIMEOUT = "10s"
# Postgres cuts a longer name, and would grant to another role.
LONGEST_NAME = 63
# To Postgres it is everybody, quoted or not.
EVERYBODY = "public"

# What publishing writes in a row of the outbox, as does whoever retries or discards one.
MARKED = (
    "published_at",
    "message_id",
    "topic",
    "available_at",
    "failed_at",
    "failure_reason",
    "blocks_key",
    "attempt_count",
    "last_error_code",
    "last_error",
)
# What an operator empties of a row that is to be forgotten, or corrects in one that failed.
REDACTED = ("payload", "attributes", "dedup_key", "ordering_key", "aggregate_id")
# Not when it was and as which role: the database alone says that.
RECORDED = (
    "action_id",
    "action",
    "acted_by",
    "why",
    "row_id",
    "event_id",
    "event_type",
    "published_at",
    "failed_at",
    "failure_reason",
    "attempt_count",
    "last_error_code",
)
TABLES = ("outbox_events", "outbox_migrations", "outbox_actions")
# What relays write of jobs and archives, in rows of their own.
UPKEEP = ("relay_schedule", "relay_runs", "archive_exports")
# With the types by which Postgres tells them apart.
EMIT, UUID7, WAKE, SIZE = (
    ("outbox_emit", "jsonb"),
    ("outbox_uuid7", "timestamptz"),
    ("outbox_wake", ""),
    ("outbox_size", "jsonb, jsonb, text, text, text, text"),
)


class Role(Enum):
    """What one has to do with the outbox."""

    EMITTER = "emitter"
    RELAY = "relay"
    VIEWER = "viewer"

    @property
    def purpose(self) -> str:
        """What its rights are for."""
        match self:
            case Role.EMITTER:
                return "services, and relay emit"
            case Role.RELAY:
                return "relay run and tick, and operators: failed retry and discard, forget"
            case Role.VIEWER:
                return "status, check, audit, runs, failed list and show"
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class Grantee:
    """A role of the database, and which of the three it is to be. Raises ConfigurationError for a name that is none."""

    role: Role
    name: str

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode()) <= LONGEST_NAME or "\0" in self.name:
            raise ConfigurationError(
                f"--{self.role.value} {self.name[:LONGEST_NAME]!r} is no name of a role: "
                f"those have 1 to {LONGEST_NAME} bytes"
            )
        if self.name == EVERYBODY:
            raise ConfigurationError(f"--{self.role.value} public is everybody, and no role; name one")


@dataclass(frozen=True, slots=True)
class Right:
    """Privileges on one object of the outbox."""

    privileges: str
    on: sql.Composable

    def statement(self, name: str, *, revoke: bool) -> str:
        """The SQL that gives it to a role, or takes it back."""
        verb, link = ("revoke", "from") if revoke else ("grant", "to")
        privileges = textwrap.fill(f"{verb} {self.privileges}", 116, subsequent_indent="    ")
        # The names are left as they are: there may be blanks in them.
        rest = f"on {self.on.as_string(None)} {link} {sql.Identifier(name).as_string(None)};"
        return privileges + ("\n    " if "\n" in privileges else " ") + rest


def rights(role: Role, schema: str) -> Iterator[Right]:
    """All that a role needs in a schema, and nothing else."""
    events, versions_, actions = (_table(schema, name) for name in TABLES)
    yield Right("usage", sql.SQL("schema {}").format(sql.Identifier(schema)))
    match role:
        case Role.EMITTER:
            yield Right("execute", _function(schema, EMIT))
        case Role.RELAY:
            yield from (Right("select", table) for table in (events, versions_, actions))
            yield Right(f"update ({', '.join((*MARKED, *REDACTED))}), delete", events)
            yield Right(f"insert ({', '.join(RECORDED)})", actions)
            yield from (Right("select, insert, update, delete", _table(schema, name)) for name in UPKEEP)
            yield from (Right("execute", _function(schema, function)) for function in (UUID7, WAKE, SIZE))
        case Role.VIEWER:
            yield from (Right("select", table) for table in (events, versions_, actions))
            yield from (Right("select", _table(schema, name)) for name in UPKEEP)
            yield Right("execute", _function(schema, UUID7))
        case _:
            assert_never(role)


def statements(schema: str, grantees: Sequence[Grantee], *, revoke: bool = False) -> list[str]:
    """The SQL that gives each grantee the rights of its role, or takes them back."""
    return [
        right.statement(grantee.name, revoke=revoke)
        for grantee in grantees
        for right in (*rights(grantee.role, schema), *(_of_old(grantee.role, schema) if revoke else ()))
    ]


def script(schema: str, grantees: Sequence[Grantee], *, revoke: bool = False) -> str:
    """The same for psql, in one transaction. Comments hold no names: a name may hold the end of a line."""
    parts = ["-- Run it as the owner of the outbox, with: psql --set ON_ERROR_STOP=1 --file roles.sql", "begin;"]
    for grantee in grantees:
        parts += [f"-- {grantee.role.value}: {grantee.role.purpose}"]
        parts += statements(schema, [grantee], revoke=revoke)
    return "\n".join([*parts, "commit;"]) + "\n"


def apply(
    connection: psycopg.Connection[Any], schema: str, grantees: Sequence[Grantee], *, revoke: bool = False
) -> list[str]:
    """Execute the statements in one transaction, and answer with them; concurrent callers wait for each other.

    Raises ConfigurationError where a role, the outbox or the right to grant is missing, SchemaError where the schema is
    too old, MigrationError where somebody else is changing it.
    """
    with _in_words(connection), connection.transaction():
        connection.execute("select set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
        connection.execute("select pg_advisory_xact_lock(%s, %s)", versions.MIGRATION_LOCK)
        _require_version(connection, schema)
        _require_roles(connection, schema, grantees)
        _require_ours(connection, schema, [grantee.name for grantee in grantees] if revoke else [])
        done = statements(schema, grantees, revoke=revoke)
        for each in done:
            connection.execute(each.encode())
        if not revoke:
            _require_usage(connection, schema, grantees)
    return done


def _of_old(role: Role, schema: str) -> Iterator[Right]:
    """What a role needed before version 5, as outbox_emit acted with its rights, and may still have."""
    if role is Role.EMITTER:
        yield Right("insert, select (id, event_id, dedup_key)", _table(schema, TABLES[0]))


def _table(schema: str, name: str) -> sql.Composable:
    return sql.Identifier(schema, name)


def _function(schema: str, function: tuple[str, str]) -> sql.Composable:
    name, types = function
    return sql.SQL("function {}({})").format(sql.Identifier(schema, name), sql.SQL(types))


def _require_version(connection: psycopg.Connection[Any], schema: str) -> None:
    version = versions.suitable(versions.version(connection, schema), schema, connection.info.dbname)
    versions.refuse_older(version, schema, FIRST_VERSION, "relay grants")


def _require_roles(connection: psycopg.Connection[Any], schema: str, grantees: Sequence[Grantee]) -> None:
    known = _asked(connection, "grants_roles", schema, names=[grantee.name for grantee in grantees])
    if missing := [repr(row["name"]) for row in known if row["missing"]]:
        raise ConfigurationError(
            f"there is no role {', '.join(missing)} on this server; nothing was changed. "
            "Create it first: create role ... login password ..."
        )


def _require_ours(connection: psycopg.Connection[Any], schema: str, not_owners: Sequence[str]) -> None:
    """Refuse to grant what is others', and to take from the owner what outbox_emit itself acts with."""
    functions = [name for name, _ in (EMIT, UUID7, WAKE, SIZE)]
    objects = _asked(connection, "grants_objects", schema, tables=[*TABLES, *UPKEEP], functions=functions)
    for row in objects:
        if not row["ours"]:
            raise ConfigurationError(
                f"role {connection.info.user!r} does not own the {row['kind']} {row['name']} of schema {schema!r}; "
                f"its owner, {row['owner']!r}, may grant rights on it. Nothing was changed"
            )
        if row["owner"] in not_owners:
            raise ConfigurationError(
                f"role {row['owner']!r} owns the outbox, which works with its rights: they are not taken. "
                "Nothing was changed"
            )


def _require_usage(connection: psycopg.Connection[Any], schema: str, grantees: Sequence[Grantee]) -> None:
    """An outbox's owner need not own its schema; Postgres then grants nothing, with a warning."""
    known = _asked(connection, "grants_roles", schema, names=[grantee.name for grantee in grantees])
    if lacking := [row["name"] for row in known if not row["usage"]]:
        names = sql.SQL(", ").join(map(sql.Identifier, lacking)).as_string(None)
        raise ConfigurationError(
            f"role {connection.info.user!r} does not own schema {schema!r} and cannot grant usage on it; nothing was "
            f"changed. Have its owner run: grant usage on schema {sql.Identifier(schema).as_string(None)} to {names}"
        )


def _asked(connection: psycopg.Connection[Any], name: str, schema: str, **values: Any) -> list[dict[str, Any]]:
    # to_regnamespace reads a name as SQL does, has_schema_privilege as it is.
    quoted = sql.Identifier(schema).as_string(None)
    cursor = connection.cursor(row_factory=dict_row)
    return cursor.execute(statement(name), {"schema": quoted, "name": schema, **values}).fetchall()


@contextmanager
def _in_words(connection: psycopg.Connection[Any]) -> Iterator[None]:
    try:
        yield
    except pg.LockNotAvailable as error:
        raise MigrationError(
            f"another session migrates the outbox or grants rights, and did not end within {LOCK_TIMEOUT}; "
            "nothing was changed. Try again when it has ended"
        ) from error
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not grant these rights: {error.diag.message_primary}; nothing was "
            "changed. Run it as the owner of the outbox"
        ) from error
