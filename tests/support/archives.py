"""Tables as a mover leaves them in the schema archive, and what is exported of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from relay.postgres.connect import connect
from relay.upkeep.archive.archive import Archive
from relay.upkeep.archive.bounds import Bounds
from relay.upkeep.archive.place import Place
from relay.upkeep.table_name import TableName
from tests.support.looking import session

EVENTS = "id bigint, age timestamptz not null, payload jsonb"
FIRST, SECOND, THIRD = "2026-01", "2026-02", "2026-03"


class Shelf:
    """The archive of one table."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        database: str,
        columns: str = EVENTS,
        *,
        name: str = "sources",
        schema: str = "public",
        age: str = "age",
        key: Sequence[str] = ("id",),
    ) -> None:
        self.database = database
        self.table = TableName(schema, name)
        self._key = sql.SQL(", ").join(map(sql.Identifier, key))
        self.say("create schema if not exists archive")
        made = "create table {} (" + columns.replace("{", "{{").replace("}", "}}") + ") partition by range ({})"
        self.say(made, self.parent, sql.Identifier(age))
        self.say("comment on table {} is {}", self.parent, sql.Literal(self.origin))

    @property
    def origin(self) -> str:
        """The table whose rows these were."""
        return str(self.table)

    @property
    def parent(self) -> sql.Identifier:
        """What a mover writes to."""
        return sql.Identifier("archive", self.table.name)

    def month(self, month: str) -> sql.Identifier:
        """Make a partition for it."""
        year, number = map(int, month.split("-"))
        ends = f"{year + number // 12}-{number % 12 + 1:02}-01+00"
        partition = sql.Identifier("archive", f"{self.table.name}_{year}_{number:02}")
        self.say("create table {} (like {})", partition, self.parent)
        self.say("alter table {} add primary key ({})", partition, self._key)
        bounds = sql.Literal(f"{month}-01+00"), sql.Literal(ends)
        self.say("alter table {} attach partition {} for values from ({}) to ({})", self.parent, partition, *bounds)
        return partition

    def fill(self, month: str, count: int, first: int = 1, size: int = 20) -> None:
        """Rows of a month, in a partition that there is."""
        self.say(
            "insert into {} (id, age, payload) select i, ({}::timestamptz + i % 1000 * interval '1 minute'), "
            "jsonb_build_object('n', repeat(md5(i::text), {} / 32 + 1)) from generate_series({}, {}) as i",
            self.parent,
            *map(sql.Literal, (f"{month}-02+00", size, first, first + count - 1)),
        )

    def say(self, statement: str, *names: sql.Composable) -> None:
        """Something to the database, as its owner."""
        session(self.database).execute(sql.SQL(statement).format(*names))


def archive(database: str, place: Path | str, bounds: Bounds | None = None, **settings: str) -> Archive:
    """What a command and a job work with."""
    return Archive(connector(database), "public", Place(str(place), **settings), bounds or Bounds())


def connector(database: str) -> Callable[[], psycopg.Connection[Any]]:
    """As a command connects."""
    return lambda: connect(database, "archive")


def kept(database: str, name: str) -> str:
    """Have a copy of a table beside it, to compare with."""
    with psycopg.connect(database) as connection:
        connection.execute(sql.SQL("create table kept as table {}").format(sql.Identifier("archive", name)))
    return "public.kept"


def differences(database: str, left: str, right: str) -> int:
    """How many rows one of two tables has and the other lacks."""
    with psycopg.connect(database) as connection:
        found = connection.execute(
            f"select count(*) from ((table {left} except all table {right}) union all "  # noqa: S608 -- a test's own
            f"(table {right} except all table {left})) as either".encode()
        ).fetchone()
    assert found
    return int(found[0])


def count(database: str, table: str) -> int:
    """How many rows a table has."""
    with psycopg.connect(database) as connection:
        found = connection.execute(f"select count(*) from {table}".encode()).fetchone()  # noqa: S608 -- the same
    assert found
    return int(found[0])


def exists(database: str, table: str) -> bool:
    """Whether there is such a table."""
    with psycopg.connect(database) as connection:
        return connection.execute("select to_regclass(%s) is not null", (table,)).fetchone() == (True,)
