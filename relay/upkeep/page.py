"""The statements of a page: look which of its rows are over, and then move those."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from relay.postgres.wire import Row
from relay.upkeep.catalog import DAY, ZONED, Column, Described, Relation
from relay.upkeep.shelf import Shelf
from relay.upkeep.transactions import raw, template

Key = Sequence[str]
"""Where a row is, as texts of its key."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What there is on a page."""

    read: int
    over: int
    last: Key | None
    """Of its last row; None where there is none."""
    is_young: bool
    """By its last row: nothing behind that can be over."""
    months: tuple[Sequence[str], ...]
    """Of what is over, to be archived: of the table, and of each child."""

    @classmethod
    def of(cls, row: Row) -> "Looked":
        """Take what the database says."""
        read, over, last, is_young, *months = row
        return cls(int(read), int(over), last, bool(is_young), tuple(months))


class Page:
    """Writes them for one table; `shelves` are where its rows go, and those of each child, if anywhere."""

    def __init__(self, described: Described, shelves: Sequence[Shelf]) -> None:
        self._described = described
        self._shelves = shelves
        parent = described.parent
        aliases = [sql.Identifier(f"key_{number}") for number, _ in enumerate(parent.key, 1)]
        self._parts: dict[str, sql.Composable] = {
            "table": parent.place.sql,
            # With its table: an order would go by what a page calls its own columns.
            "key": _listed(parent.of(column) for column in parent.key),
            "keys": _listed(_as(column.sql, alias) for column, alias in zip(parent.key, aliases, strict=True)),
            "is_over": self._is_over(),
        }
        self._aliases = aliases

    def look(self, after: Key | None, rows: int) -> sql.Composed:
        """Read so many rows behind a key, and hold none."""
        parent, archived = self._described.parent, bool(self._shelves)
        return template(
            "page_look",
            **self._parts,
            is_young=self._is_young(),
            month=_month(parent.age.sql, parent.age) if archived else sql.SQL("null::date"),
            beyond=self._beyond(after),
            rows=sql.Literal(rows),
            texts=_listed(_as_text(alias) for alias in self._aliases),
            backwards=_listed(sql.SQL("{} desc").format(alias) for alias in self._aliases),
            of_children=sql.Composed(self._months_of_children() if archived else []),
        )

    def lock(self) -> sql.Composed:
        """Wait for whoever has one of the tables for himself."""
        places = [relation.place for relation in self._described.relations]
        places += [shelf.place for shelf in self._shelves]
        return template("page_lock", tables=sql.SQL(", only ").join([place.sql for place in places]))

    def hold(self, after: Key | None, last: Key, rows: int) -> sql.Composed:
        """Hold what is over of the rows behind a key up to another one: to be moved in the same transaction."""
        shapes = [
            template(
                "page_shape", table=sql.Literal(relation.place.sql.as_string(None)), shape=sql.Literal(relation.shape)
            )
            for relation in self._described.relations
        ]
        return template(
            "page_hold",
            **self._parts,
            **self._between(after, last, rows),
            is_as_described=sql.SQL("({})").format(sql.SQL(" and ").join(shapes)),
        )

    def move(self, after: Key | None, last: Key, rows: int) -> sql.Composed:
        """Move what is held of them."""
        parent = self._described.parent
        is_in_page = sql.SQL(" and ").join(
            sql.SQL("{} operator({}.=) {}").format(
                parent.of(column), sql.Identifier(order), sql.Identifier("mover_page", f"key_{number}")
            )
            for number, (column, order) in enumerate(zip(parent.key, parent.orders, strict=True), 1)
        )
        return template(
            "page_move",
            **self._parts,
            **self._between(after, last, rows),
            is_in_page=is_in_page,
            columns=_columns_of(parent),
            with_it=sql.Composed(self._with_it()),
        )

    def _between(self, after: Key | None, last: Key, rows: int) -> dict[str, sql.Composable]:
        return {
            "beyond": self._beyond(after),
            "up_to": self._compared("<=", last),
            "rows": sql.Literal(rows),
        }

    def _with_it(self) -> list[sql.Composable]:
        parts = [_kept("mover_gone", self._shelves[0])] if self._shelves else []
        for number, branch in enumerate(self._described.branches, 1):
            gone, child = f"mover_child_{number}", branch.relation
            parts.append(
                template(
                    "page_move_child",
                    name=sql.Identifier(gone),
                    child=child.place.sql,
                    column=branch.column.sql,
                    order=sql.Identifier(self._described.parent.orders[0]),
                    key=self._described.parent.key[0].sql,
                    columns=_columns_of(child),
                )
            )
            if self._shelves:
                parts.append(_kept(gone, self._shelves[number]))
        return list(parts)

    def _months_of_children(self) -> list[sql.Composable]:
        return [
            template(
                "page_look_child",
                child=branch.relation.place.sql,
                column=branch.column.sql,
                order=sql.Identifier(self._described.parent.orders[0]),
                age=branch.relation.of(branch.relation.age),
                month=_month(branch.relation.of(branch.relation.age), branch.relation.age),
            )
            for branch in self._described.branches
        ]

    def _is_over(self) -> sql.Composable:
        age = self._described.parent.age
        # No month has rows from before the common era.
        dated = sql.SQL(" and {} >= '0001-01-01'").format(age.sql) if self._shelves else sql.SQL("")
        # A comment at the end of a condition ends with its line.
        return sql.SQL("({} < {}{} and ({}\n))").format(
            age.sql, self._moment(age), dated, raw(self._described.table.where)
        )

    def _is_young(self) -> sql.Composable:
        described = self._described
        grows = described.born or (described.parent.age if described.parent.key[0] == described.parent.age else None)
        if grows is None:
            return sql.SQL("false")
        return sql.SQL("{} >= {}").format(grows.sql, self._moment(grows))

    def _moment(self, column: Column) -> sql.Composable:
        """What is older than the cutoff is less than this, as a value of the column's type."""
        cutoff = sql.SQL("{}::timestamptz").format(sql.Literal(self._described.cutoff))
        if column.plain_type == ZONED:
            return cutoff
        local = sql.SQL("({} at time zone 'UTC')").format(cutoff)
        return sql.SQL("{}::date").format(local) if column.plain_type == DAY else local

    def _beyond(self, key: Key | None) -> sql.Composable:
        return sql.SQL("true") if key is None else self._compared(">", key)

    def _compared(self, how: str, key: Key) -> sql.Composable:
        """By the operators that the index goes by, whatever others the session finds first.

        One comparison of rows is what an index is read by from the row on; all its operators are of one schema that is
        named, or found by themselves.
        """
        parent = self._described.parent
        parts = [
            (column.sql, sql.SQL("{}::{}").format(sql.Literal(text), raw(column.type)), sql.Identifier(order))
            for column, text, order in zip(parent.key, key, parent.orders, strict=True)
        ]
        columns, values, orders = zip(*parts, strict=True)
        if len(set(parent.orders)) == 1:
            return sql.SQL("({}) operator({}.{}) ({})").format(_listed(columns), orders[0], raw(how), _listed(values))
        if parent.are_found:
            return sql.SQL("({}) {} ({})").format(_listed(columns), raw(how), _listed(values))
        compared: sql.Composable = sql.SQL("true" if how == "<=" else "false")
        for column, value, order in reversed(parts):
            compared = sql.SQL(
                "{0} operator({2}.{3}=) {1} and ({0} operator({2}.{3}) {1} or ({0} operator({2}.=) {1} and ({4})))"
            ).format(column, value, order, raw(how[0]), compared)
        return compared


def _kept(gone: str, shelf: Shelf) -> sql.Composable:
    return template(
        "page_move_kept",
        name=sql.Identifier(f"{gone}_kept"),
        shelf=shelf.place.sql,
        columns=_listed(column.sql for column in shelf.relation.columns),
        gone=sql.Identifier(gone),
    )


def _month(value: sql.Composable, age: Column) -> sql.Composable:
    local = sql.SQL("{} at time zone 'UTC'").format(value) if age.plain_type == ZONED else value
    return sql.SQL("date_trunc('month', {})::date").format(local)


def _columns_of(relation: Relation) -> sql.Composable:
    return _listed(relation.of(column) for column in relation.columns)


def _listed(parts: Iterable[sql.Composable]) -> sql.Composable:
    return sql.Composed(list(parts)).join(", ")


def _as(value: sql.Composable, name: sql.Composable) -> sql.Composable:
    return sql.SQL("{} as {}").format(value, name)


def _as_text(value: sql.Composable) -> sql.Composable:
    return sql.SQL("{}::text").format(value)
