"""What the database says about a table that is to be worked on; each mistake is one sentence, with what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from psycopg import errors as pg
from psycopg import sql

from relay.errors import ConfigurationError
from relay.upkeep.table import Child, Table
from relay.upkeep.table_name import TableName
from relay.upkeep.transactions import Transactions, template

ZONED: Final = "timestamp with time zone"
UNZONED: Final = "timestamp without time zone"
DAY: Final = "date"
_TABLES: Final = ("r", "p")
_OTHERS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


@dataclass(frozen=True, slots=True)
class Column:
    """One of a table."""

    name: str
    type: str
    never_null: bool
    rule: str | None
    """Its collation, where that is not its type's."""

    @property
    def sql(self) -> sql.Identifier:
        """As a statement has it."""
        return sql.Identifier(self.name)

    @property
    def plain_type(self) -> str:
        """Its type without a precision, as in timestamp(3)."""
        before, _, rest = self.type.partition("(")
        return before + rest.partition(")")[2]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is."""

    place: TableName
    oid: int
    origin: str
    """How Postgres writes its name."""
    shape: int
    """Other columns, and other references to it, have another one."""
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    """What tells its rows apart; nothing where nobody asked."""
    orders: tuple[str, ...]
    """In which schema the operators are that a column of the key is ordered by."""
    are_found: bool
    """Whether a session of the mover finds those where no schema is named."""
    age: Column

    def of(self, column: Column) -> sql.Identifier:
        """One of its columns, whatever others are near."""
        return sql.Identifier(self.place.schema, self.place.name, column.name)


@dataclass(frozen=True, slots=True)
class Branch:
    """A child as it is: which of its columns refers to the key."""

    relation: Relation
    column: Column


@dataclass(frozen=True, slots=True)
class Described:
    """A table that can be worked on, with all that goes with it."""

    table: Table
    parent: Relation
    born: Column | None
    branches: tuple[Branch, ...]
    cutoff: str
    """What is older is over: for all of a run."""
    role: str

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The table, and its children."""
        return (self.parent, *(branch.relation for branch in self.branches))


class Catalog:
    """Asks for a table; `say` says what pages say, too. Raises ConfigurationError for what cannot be worked on."""

    def __init__(self, ask: Transactions, say: Transactions) -> None:
        self._ask = ask
        self._say = say

    async def described(self, table: Table, before: float | None = None) -> Described:
        """The table, when all of it is as its description says; where it is given, what is from before then is over."""
        seconds = table.after.total_seconds()
        ((cutoff, role),) = await self._asked("catalog_cutoff", seconds=seconds, before=before)
        found = await self._found(table.place, table, role, held=True)
        index = await self._key(found, table)
        archived = table.to == "archive"
        age = found.dated(table.age, "age")
        born = found.dated(table.born, "born") if table.born is not None else None
        parent = found.relation(index, age)
        branches = tuple([await self._branch(parent, child, role, archived=archived) for child in table.children])
        described = Described(table, parent, born, branches, cutoff, role)
        if archived:
            await self._refuse_cascades(described)
        return described

    async def _branch(self, parent: Relation, child: Child, role: str, *, archived: bool) -> Branch:
        place = TableName.of(child.name, parent.place.schema)
        found = await self._found(place, child, role, held=False)
        if len(parent.key) > 1:
            names = ", ".join(column.name for column in parent.key)
            raise ConfigurationError(
                f"table {parent.origin} has the key ({names}), and {place} cannot be its child: that refers to one "
                "column; name it with key="
            )
        if archived and found.has_policies:
            raise ConfigurationError(
                f"policies of {found.origin} may hide rows of it from role {role!r}, which a cascade would remove and "
                f"nobody archive; run: alter role {_written(role)} bypassrls"
            )
        column = found.named(child.column, "the column")
        await self._require_comparable(parent, found, column)
        age = found.dated(child.age, "age")
        if archived and not age.never_null:
            raise ConfigurationError(
                f"{found.origin}.{age.name} may be null, and by it children are archived; run: "
                f"alter table {found.origin} alter column {_written(age.name)} set not null"
            )
        ((indexed,),) = await self._asked("catalog_indexed", oid=found.oid, column=column.name)
        if not indexed:
            raise ConfigurationError(
                f"{found.origin} has no index that begins with {column.name}: each page would read all of it; run: "
                f"create index concurrently on {found.origin} ({_written(column.name)})"
            )
        indexes = await self._indexes(found) if archived else []
        primary = next((index for index in indexes if index.is_primary), None)
        if archived and primary is None:
            raise ConfigurationError(
                f"{found.origin} has no primary key, by which no row of it is archived twice; add one: "
                f"alter table {found.origin} add column row_id bigint generated always as identity primary key"
            )
        return Branch(found.relation(primary or _Index(), age), column)

    async def _require_comparable(self, parent: Relation, found: "_Found", column: Column) -> None:
        key, order = parent.key[0], parent.orders[0]
        refers = template(
            "catalog_refers",
            child=found.place.sql,
            column=column.sql,
            parent=parent.place.sql,
            key=key.sql,
            order=sql.Identifier(order),
        )
        try:
            await self._ask.do(refers)
        except (pg.UndefinedFunction, pg.AmbiguousFunction) as error:
            raise ConfigurationError(
                f"{found.origin}.{column.name} is {column.type}, and cannot be compared with "
                f"{parent.origin}.{key.name}, which is {key.type}; name another column, or run: "
                f"alter table {found.origin} alter column {_written(column.name)} type {key.type}"
            ) from error

    async def _found(self, place: TableName, wanted: Table | Child, role: str, *, held: bool) -> "_Found":
        rows = await self._asked("catalog_table", schema=place.schema, name=place.name, held=held)
        if not rows:
            raise ConfigurationError(
                f"there is no table {place} (named {wanted.name!r}); names are as Postgres has them, and capitals count"
            )
        ((oid, origin, kind, has_heirs, missing, has_policies, shape),) = rows
        if kind not in _TABLES or has_heirs:
            what = "has tables that inherit from it" if has_heirs else f"is {_OTHERS.get(kind, 'no table')}"
            raise ConfigurationError(f"{origin} {what}, and rows cannot be moved from there; name a table by itself")
        if missing:
            on = f"schema {_written(place.schema)}" if missing[0].startswith("usage") else origin
            rights = "usage" if on != origin else ", ".join(missing)
            raise ConfigurationError(
                f"role {role!r} may not move rows of {origin}; have its owner run: "
                f"grant {rights} on {on} to {_written(role)}"
            )
        columns = await self._asked("catalog_columns", oid=oid)
        return _Found(place, oid, origin, shape, has_policies, {row[0]: Column(*row) for row in columns})

    async def _indexes(self, found: "_Found") -> list["_Index"]:
        (rows,) = await self._say.do(self._say.call("catalog_keys", {"oid": found.oid}))
        return [_Index(*row) for row in rows]

    async def _key(self, found: "_Found", table: Table) -> "_Index":
        indexes = await self._indexes(found)
        for name in table.key:
            if not found.named(name, "key").never_null:
                raise ConfigurationError(
                    f"{found.origin}.{name} may be null, and cannot be walked along; "
                    f"run: alter table {found.origin} alter column {_written(name)} set not null"
                )
        for index in indexes:
            if tuple(index.columns) == table.key or (index.is_primary and not table.key):
                return index
        if table.key:
            listed = ", ".join(map(_written, table.key))
            raise ConfigurationError(
                f"{found.origin} has no unique index on exactly ({listed}), ascending, and is not walked along it; "
                f"run: create unique index concurrently on {found.origin} ({listed})"
            )
        raise ConfigurationError(
            f"{found.origin} has no primary key to be walked along; name columns with a unique index by key=, such as "
            "key=('id',)"
        )

    async def _refuse_cascades(self, described: Described) -> None:
        moved = [relation.oid for relation in described.relations]
        cascades = await self._asked(
            "catalog_cascades",
            moved=moved,
            parent=described.parent.oid,
            key=described.parent.key[0].name,
            children=[branch.relation.oid for branch in described.branches],
            columns=[branch.column.name for branch in described.branches],
        )
        for name, referring in cascades:
            raise ConfigurationError(
                f"rows of {referring} would be removed with theirs and not archived (constraint {name}, on delete "
                f"cascade); where it refers to the key of {described.parent.origin}, name it with its column in "
                f"children= of table {described.table.name!r}; else have it without on delete cascade, or move to "
                "nowhere"
            )

    async def _asked(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        return (await self._ask.do(self._ask.call(name, values)))[0]


@dataclass(frozen=True, slots=True)
class _Index:
    """What a table may be walked along; by itself, nothing."""

    is_primary: bool = False
    columns: Sequence[str] = ()
    orders: Sequence[str] = ()
    are_found: bool = True


@dataclass(frozen=True, slots=True)
class _Found:
    """A table of which is known what it has, and not yet what is needed."""

    place: TableName
    oid: int
    origin: str
    shape: int
    has_policies: bool
    """Whether there may be rows that the role does not see."""
    columns: Mapping[str, Column]

    def named(self, name: str, what: str) -> Column:
        """A column that somebody named."""
        if name not in self.columns:
            near = get_close_matches(name, self.columns, n=1)
            raise ConfigurationError(
                f"{self.origin} has no column {name!r}, named as {what}; "
                + (f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.columns)}")
            )
        return self.columns[name]

    def dated(self, name: str, what: str) -> Column:
        """One that is a time, or a day."""
        column = self.named(name, what)
        if column.plain_type not in {ZONED, UNZONED, DAY}:
            raise ConfigurationError(
                f"{self.origin}.{name} is {column.type}, named as {what}; "
                "name a column of type timestamptz, timestamp or date"
            )
        return column

    def relation(self, index: _Index, age: Column) -> Relation:
        return Relation(
            place=self.place,
            oid=self.oid,
            origin=self.origin,
            shape=self.shape,
            columns=tuple(self.columns.values()),
            key=tuple(self.columns[name] for name in index.columns),
            orders=tuple(index.orders),
            are_found=index.are_found,
            age=age,
        )


def _written(name: str) -> str:
    return sql.Identifier(name).as_string(None)
