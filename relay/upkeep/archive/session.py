"""What an archive says to the database: each transaction makes its session fit for itself, as behind a pooler."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.rows import dict_row

from relay.errors import ArchiveError, ConfigurationError, SchemaError
from relay.kernel.failure import told
from relay.postgres.statements import Statements, search_path
from relay.upkeep.table_name import ARCHIVE

Connect = Callable[[], psycopg.Connection[Any]]
Row = dict[str, Any]

_statement = Statements("relay.upkeep.archive")
# Where only Postgres' own names need no schema, a name is written with it.
_NOTHING_ELSE = "pg_catalog, pg_temp"
_FOREVER = "0"


class Session:
    """One connection, in autocommit mode between transactions."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        # What is prepared in one session is not there in the next one that a pooler hands out.
        connection.prepare_threshold = None
        connection.autocommit = True
        self._connection = connection
        self._schema = schema

    @classmethod
    @contextmanager
    def open(cls, connect: Connect, schema: str) -> Iterator["Session"]:
        """One that ends with the block."""
        connection = connect()
        try:
            yield cls(connection, schema)
        finally:
            connection.close()

    @property
    def user(self) -> str:
        """As which role it is connected."""
        return self._connection.info.user

    def keep(self) -> None:
        """Say something: while a file travels, a server may end a session that says nothing between transactions."""
        self._connection.execute("select")

    @contextmanager
    def transaction(self, *, ours: bool = True, lock_timeout: str = _FOREVER) -> Iterator[psycopg.Connection[Any]]:
        """READ COMMITTED. The tables that are `ours` need no schema in it, or else no table but Postgres' own."""
        path = search_path(self._schema) if ours else _NOTHING_ELSE
        with _in_words(self.user), self._connection.transaction():
            self._connection.execute("set transaction isolation level read committed")
            self._connection.execute(_statement("enter"), {"search_path": path, "lock_timeout": lock_timeout})
            yield self._connection

    def rows(self, name: str, /, **values: object) -> list[Row]:
        """What the statement `sql/<name>.sql` answers, in a transaction of its own."""
        with self.transaction() as connection:
            return ask(connection, name, values)

    def require_tables(self) -> None:
        """Raise SchemaError where nothing can be recorded."""
        with self.transaction() as connection:
            known = connection.execute("select to_regclass('archive_exports') is not null").fetchone()
        if known != (True,):
            raise SchemaError(
                f"schema {self._schema!r} of database {self._connection.info.dbname!r} has no table archive_exports; "
                "make it with: python -m relay migrate, or python -m consumers migrate"
            )


def ask(connection: psycopg.Connection[Any], name: str, values: Mapping[str, object]) -> list[Row]:
    """What a statement answers, in the transaction that there is."""
    cursor = connection.cursor(row_factory=dict_row)
    return cursor.execute(_statement(name), values).fetchall()


def do(connection: psycopg.Connection[Any], name: str, values: Mapping[str, object]) -> int:
    """Execute a statement in the transaction that there is; answer with the number of rows that it changed."""
    return connection.execute(_statement(name), values).rowcount


def template(name: str, /, **parts: sql.Composable) -> sql.Composed:
    """The statement `sql/<name>.sql` about a table that is not ours."""
    return sql.SQL(_statement(name).decode()).format(**parts)


def archived(name: str) -> sql.Identifier:
    """A table of the schema archive."""
    return sql.Identifier(ARCHIVE, name)


@contextmanager
def _in_words(user: str) -> Iterator[None]:
    """What a role may not do is said with who may."""
    try:
        yield
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {user!r} may not do that: {told(error)}; "
            "use the role that the rows are archived with, which owns the tables of schema archive, or see "
            "docs/archive.md for the rights"
        ) from error
    except pg.DiskFull as error:
        raise ArchiveError(f"the database has no space left: {told(error)}; make some, and call again") from error
