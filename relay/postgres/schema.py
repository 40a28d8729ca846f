"""A schema's version: what the database has, what the code needs, and how it gets there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.errors import ConfigurationError, MigrationError, SchemaError
from relay.postgres.ladder import LOCK_TIMEOUT, MIGRATION_TIMEOUT, Ladder, Step
from relay.postgres.statements import search_path


@dataclass(frozen=True, slots=True)
class Versions:
    """One ladder, against whatever database and schema."""

    ladder: Ladder

    def migrate(self, connection: psycopg.Connection[Any], schema: str, target: int | None = None) -> list[Step]:
        """Bring the schema to the target version, all in one transaction; concurrent callers wait for each other.

        Without a target it is this code's own, and the one after it is left as it is: older code that is deployed again
        works on what the newer one has left.

        Raises SchemaError, ConfigurationError, or MigrationError where rows or transactions are in the way.
        """
        with self._in_words(connection, schema), connection.transaction():
            _wait_at_most(connection, MIGRATION_TIMEOUT)
            connection.execute("select pg_advisory_xact_lock(%s, %s)", self.ladder.lock)
            _wait_at_most(connection, LOCK_TIMEOUT)
            way = self.plan(connection, schema, target)
            connection.execute("select set_config('search_path', %s, true)", (search_path(schema),))
            if way:
                connection.execute(self.ladder.record_made.encode())
            for step in way:
                connection.execute(step.statements.encode())
                connection.execute(step.bookkeeping.encode())
        return way

    def plan(self, connection: psycopg.Connection[Any], schema: str, target: int | None = None) -> list[Step]:
        """The steps from the version that the database has to the target, as `migrate` has it; none is taken."""
        known = connection.execute("select to_regnamespace(%s)", (sql.Identifier(schema).as_string(connection),))
        if known.fetchone() == (None,):
            raise SchemaError(
                f"database {connection.info.dbname!r} has no schema {schema!r}; "
                f"create it, or name another one in {self.ladder.setting}"
            )
        current, newest = self.version(connection, schema), self.ladder.newest()
        if target is None and current == newest + 1:
            return []
        if current > newest:
            raise self._newer(current, schema)
        return self.ladder.steps(current, newest if target is None else target)

    def version(self, connection: psycopg.Connection[Any], schema: str) -> int:
        """The version that the database has; 0 where no step was taken."""
        with connection.transaction():
            known = connection.execute(self._known(schema)).fetchone()
            row = connection.execute(self._newest_applied(schema)).fetchone() if known else None
        return int(row[0]) if row else 0

    async def require(self, connection: psycopg.AsyncConnection[Any], schema: str) -> int:
        """Answer with the schema's version; refuse one that this code was not made for.

        It works on the version before its own and on the one after, so that old and new code run side by side in a
        deploy. The connection is in autocommit mode. Without a transaction around the two statements: a relay that
        sleeps asks for them every minute, and for little else.
        """
        try:
            known = await (await connection.execute(self._known(schema))).fetchone()
            row = await (await connection.execute(self._newest_applied(schema))).fetchone() if known else None
        except pg.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"role {connection.info.user!r} may not read the {self.ladder.name} in schema {schema!r}: "
                f"{error.diag.message_primary}; {self.ladder.rights}"
            ) from error
        if known is None:
            await self._require_schema(connection, schema)
        return self.suitable(int(row[0]) if row else 0, schema, connection.info.dbname)

    async def _require_schema(self, connection: psycopg.AsyncConnection[Any], schema: str) -> None:
        there = await connection.execute("select 1 from pg_namespace where nspname = %s", [schema])
        if await there.fetchone() is None:
            raise SchemaError(
                f"database {connection.info.dbname!r} has no schema {schema!r}, which {self.ladder.setting} names; "
                f"correct the name there, or create the schema and then the {self.ladder.name} with: "
                f"{self.ladder.command}"
            )

    def suitable(self, current: int, schema: str, database: str) -> int:
        """The same of a version that is known: answer with it, or raise SchemaError."""
        newest = self.ladder.newest()
        if current > newest + 1:
            raise self._newer(current, schema)
        if current == 0:
            raise SchemaError(
                f"database {database!r} has no {self.ladder.name} in schema {schema!r}; "
                f"create it with: {self.ladder.command}"
            )
        if current < newest - 1:
            raise SchemaError(
                f"schema {schema!r} is at version {current}, this code works on {newest - 1} to {newest + 1}; "
                f"bring it up with: {self.ladder.command}"
            )
        return current

    def refuse_older(self, current: int, schema: str, version: int, what_for: str) -> None:
        """Raise SchemaError where what is there cannot hold what `what_for` needs, such as "relay grants"."""
        if current < version:
            raise SchemaError(
                f"{what_for} needs version {version} of schema {schema!r}, which is at {current}; "
                f"bring it up with: {self.ladder.command}"
            )

    def _known(self, schema: str) -> sql.Composed:
        table = sql.Identifier(schema, self.ladder.record).as_string(None)
        return sql.SQL("select 1 where to_regclass({}) is not null").format(table)

    def _newest_applied(self, schema: str) -> sql.Composed:
        table = sql.Identifier(schema, self.ladder.record)
        return sql.SQL("select coalesce(max(version), 0) from {}").format(table)

    def _newer(self, current: int, schema: str) -> SchemaError:
        return SchemaError(
            f"schema {schema!r} is at version {current}, newer than the {self.ladder.newest()} of this code; "
            "deploy the release that migrated it, or a later one"
        )

    @contextmanager
    def _in_words(self, connection: psycopg.Connection[Any], schema: str) -> Iterator[None]:
        try:
            yield
        except pg.LockNotAvailable as error:
            raise MigrationError(
                f"another transaction holds what the migration of schema {schema!r} needs, and did not end in time; "
                "nothing was changed. Find it in pg_stat_activity by its xact_start, let it end, and try again"
            ) from error
        except pg.DependentObjectsStillExist as error:
            raise MigrationError(f"{error.diag.message_primary}: {self.ladder.in_use}") from error
        except pg.ObjectInUse as error:
            raise MigrationError(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
        except pg.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"role {connection.info.user!r} may not change schema {schema!r}: {error.diag.message_primary}; "
                f"grant it create on the schema, or migrate as the owner of the {self.ladder.name}"
            ) from error


def _wait_at_most(connection: psycopg.Connection[Any], limit: str) -> None:
    connection.execute("select set_config('lock_timeout', %s, true)", (limit,))
