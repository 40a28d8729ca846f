"""Where rows of a table are put aside: `archive.<table>`, a partition for each month of their age, in UTC."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from psycopg import errors as pg
from psycopg import sql

from relay.errors import ConfigurationError, MoveError
from relay.upkeep.archive.months import in_names
from relay.upkeep.catalog import Column, Relation
from relay.upkeep.table_name import ARCHIVE, TableName
from relay.upkeep.transactions import Transactions, raw, template

# A month adds _2026_01 to it, and a part that is exported _p12 and more.
_MOST_BYTES: Final = 50
_THERE: Final = (pg.DuplicateTable, pg.DuplicateSchema, pg.DuplicateObject, pg.UniqueViolation)


@dataclass(frozen=True, slots=True)
class _State:
    """What there is of a shelf by now."""

    has_schema: bool
    oid: int | None
    origin: str | None
    parted_by: list[str] | None
    months: frozenset[str]
    demanded: list[str]
    """Columns that no row of these months may lack."""


class Shelf:
    """That of one table. What is missing is made, where the role may; ConfigurationError says what to do otherwise."""

    def __init__(self, relation: Relation, role: str) -> None:
        self.relation = relation
        self.place = TableName(ARCHIVE, relation.place.name)
        self._role = role
        self._months: frozenset[str] = frozenset()
        if len(self.place.name.encode()) > _MOST_BYTES:
            raise ConfigurationError(
                f"{relation.origin} has a name of more than {_MOST_BYTES} bytes, and months of it would have one too "
                "long for Postgres; rename it, or move its rows to nowhere"
            )

    async def prepare(self, say: Transactions) -> None:
        """Make it, or see that it fits."""
        state = await self._state(say)
        if not state.has_schema:
            await self._make(say, template("shelf_schema"))
        if state.oid is None:
            origin = sql.Literal(self.relation.origin)
            await self._make(
                say,
                template(
                    "shelf_make",
                    shelf=self.place.sql,
                    columns=sql.SQL(", ").join(map(_defined, self.relation.columns)),
                    age=self.relation.age.sql,
                ),
                template("shelf_mark", shelf=self.place.sql, origin=origin),
            )
            state = await self._state(say)
        self._judge(state)
        columns = await self._columns(say, state)
        self._judge_demanded(state, columns)
        await self._add_columns(say, columns)
        self._months = state.months

    async def reach(self, say: Transactions, months: Iterable[str]) -> None:
        """Have a partition for each of these months, told by their first days."""
        for first in sorted(months):
            begins = date.fromisoformat(first)
            name = TableName(ARCHIVE, f"{self.place.name}_{in_names(begins)}")
            if name.name in self._months:
                continue
            await self._make(
                say,
                template("shelf_month", month=name.sql, shelf=self.place.sql),
                template(
                    "shelf_month_key",
                    month=name.sql,
                    key=sql.SQL(", ").join(column.sql for column in self.relation.key),
                ),
                template(
                    "shelf_month_attach",
                    shelf=self.place.sql,
                    month=name.sql,
                    begins=sql.Literal(f"{begins} 00:00:00+00"),
                    ends=sql.Literal(f"{_next(begins)} 00:00:00+00"),
                ),
            )
            await self.look(say)
            if name.name not in self._months:
                raise ConfigurationError(
                    f"{name} is in the way: it is no month of {self.place}, and a month is to be made under its name; "
                    "rename it"
                )

    async def look(self, say: Transactions) -> None:
        """See which months there are by now."""
        self._months = (await self._state(say)).months

    def _judge(self, state: _State) -> None:
        origin = self.relation.origin
        if state.oid is None or state.origin != origin:
            raise ConfigurationError(
                f"{self.place} has no rows of {origin}, but "
                + (f"those of {state.origin!r}" if state.origin else "nothing says whose")
                + " (its comment says so); rename it, or this table"
            )
        if state.parted_by != [self.relation.age.name]:
            told = ", ".join(state.parted_by or ["nothing"])
            raise ConfigurationError(
                f"{self.place} is partitioned by {told}, and the age of {origin} is {self.relation.age.name}; keep "
                "to one of them, or rename the archived table"
            )

    def _judge_demanded(self, state: _State, known: Mapping[str, str]) -> None:
        kept = {column.name for column in self.relation.columns}
        gone = next((name for name in state.demanded if name not in kept), None)
        if gone is None:
            return
        renamed = self._renamed(known, known[gone])
        raise ConfigurationError(
            f"{self.place}.{gone} is never null in {', '.join(sorted(state.months))}, and {self.relation.origin} has "
            "no such column by now; "
            + (
                f"where it was renamed, run: alter table {self.place.sql.as_string(None)} rename column "
                f"{_written(gone)} to {_written(renamed)}; where it was dropped, "
                if renamed
                else ""
            )
            + "seal each month: python -m relay archive export "
            f"--table {self.relation.origin} --month ..."
        )

    def _renamed(self, known: Mapping[str, str], kind: str) -> str | None:
        """The column that one of this type may be by now: of the key, if there is one."""
        new = [
            column.name
            for column in (*self.relation.key, *self.relation.columns)
            if column.name not in known and column.type == kind
        ]
        return new[0] if new else None

    async def _columns(self, say: Transactions, state: _State) -> dict[str, str]:
        """Each with its type."""
        (there,) = await say.do(say.call("catalog_columns", {"oid": state.oid}))
        return {row[0]: row[1] for row in there}

    async def _add_columns(self, say: Transactions, known: Mapping[str, str]) -> None:
        for column in self.relation.columns:
            if column.name not in known:
                await self._add(say, column)
            elif known[column.name] != column.type:
                raise ConfigurationError(
                    f"{self.place}.{column.name} is {known[column.name]}, and {self.relation.origin}.{column.name} is "
                    f"{column.type} by now; run: alter table {self.place.sql.as_string(None)} alter column "
                    f"{column.sql.as_string(None)} type {column.type}"
                )

    async def _add(self, say: Transactions, column: Column) -> None:
        try:
            await self._make(say, template("shelf_add", shelf=self.place.sql, column=_defined(column)))
        except pg.LockNotAvailable as error:
            raise MoveError(
                f"{self.place} could not be given the column {column.name}, which {self.relation.origin} has by now: "
                "another transaction reads it or a month of it, such as a backup; the next run tries again. End that "
                "transaction where it is to be sooner (pg_locks names it). No row was moved"
            ) from error

    async def _make(self, say: Transactions, *statements: sql.Composable) -> None:
        try:
            await say.do(*statements)
        except pg.InsufficientPrivilege as error:
            raise ConfigurationError(self._lacking(statements)) from error
        except _THERE:
            # Somebody else has just made it; whether it is what is needed is seen next.
            return

    def _lacking(self, statements: Iterable[sql.Composable]) -> str:
        role = sql.Identifier(self._role).as_string(None)
        needed = [
            f"create schema if not exists {ARCHIVE}",
            f"grant usage, create on schema {ARCHIVE} to {role}",
            f"alter table if exists {self.place.sql.as_string(None)} owner to {role}",
        ]
        what = next(iter(statements)).as_string(None).splitlines()[1]
        return (
            f"role {self._role!r} may not make what {self.relation.origin} is archived in ({what[:100]}); have an "
            f"owner run: {'; '.join(needed)}"
        )

    async def _state(self, say: Transactions) -> _State:
        ((has_schema, oid, origin, parted_by, months, demanded),) = (
            await say.do(say.call("catalog_shelf", {"name": self.place.name}))
        )[0]
        return _State(has_schema, oid, origin, parted_by, frozenset(months), demanded)


def _defined(column: Column) -> sql.Composable:
    defined = sql.SQL("{} {}").format(column.sql, raw(column.type))
    return sql.SQL("{} collate {}").format(defined, raw(column.rule)) if column.rule else defined


def _written(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _next(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
