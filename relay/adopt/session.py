"""The session in which an old table is looked at or moved: one mapping of one table, verified, and its transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.pq import TransactionStatus

from relay.adopt.expressions import verify
from relay.adopt.mapping import Mapping
from relay.adopt.queries import Queries
from relay.adopt.table import OUTBOX, OldTable, examined, placed
from relay.errors import ConfigurationError, SchemaError
from relay.outbox import schema
from relay.outbox.statements import statement
from relay.postgres.statements import search_path

# How long rows may be waited for that somebody else has locked, an old publisher that is sending them for example.
ROWS_TIMEOUT = "60s"


@dataclass(frozen=True, slots=True)
class Session:
    """A connection, an old table, and the statements on it."""

    connection: psycopg.Connection[Any]
    outbox_schema: str
    table: OldTable
    mapping: Mapping
    queries: Queries

    @contextmanager
    def transaction(self, lock_timeout: str = ROWS_TIMEOUT) -> Iterator[None]:
        """A transaction in which names, times and rights are those of the trigger; within another one, a part of it."""
        alone = self.connection.info.transaction_status is TransactionStatus.IDLE
        with self.connection.transaction():
            if alone:
                enter(self.connection, self.outbox_schema, lock_timeout)
            yield

    def __str__(self) -> str:
        return str(self.table)


def opened(connection: psycopg.Connection[Any], outbox_schema: str, mapping: Mapping) -> Session:
    """Find the table and have the server read every expression. Raises ConfigurationError; nothing is changed."""
    # Planned for the values at hand; and behind a pooler the session belongs to others.
    connection.prepare_threshold = None
    require(connection, outbox_schema)
    try:
        with connection.transaction():
            place = placed(connection, mapping.table, outbox_schema)
            enter(connection, outbox_schema)
            table = examined(connection, place, mapping)
            verify(connection, table, mapping)
            # Rights, and policies that hide rows, are known where a statement begins to run.
            for each in (table.identifier, sql.Identifier(OUTBOX)):
                connection.execute(sql.SQL("select * from {} limit 0").format(each))
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} cannot compare all rows: {error.diag.message_primary}; grant it what "
            f"reads {mapping.table} and outbox_events; row-level security must not hide rows from it"
        ) from error
    return Session(connection, outbox_schema, table, mapping, Queries(table, mapping))


def require(connection: psycopg.Connection[Any], outbox_schema: str) -> None:
    """Refuse a database whose outbox is missing or not that of this code."""
    try:
        way = schema.plan(connection, outbox_schema, schema.newest())
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {connection.info.user!r} may not read outbox_migrations in schema {outbox_schema!r}; "
            f"grant it select on the tables there"
        ) from error
    finally:
        connection.rollback()
    if way:
        raise SchemaError(
            f"database {connection.info.dbname!r} has no outbox of this release in schema {outbox_schema!r}; "
            "bring it up with: python -m relay migrate"
        )


def enter(connection: psycopg.Connection[Any], outbox_schema: str, lock_timeout: str = ROWS_TIMEOUT) -> None:
    """Make the transaction that is open fit for this work."""
    values = {"search_path": search_path(outbox_schema), "lock_timeout": lock_timeout}
    connection.execute(statement("adopt_enter"), values)
