"""Rows of a sealed table, in the order of their key, as groups that are bounded in rows and in bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Rollback, sql

from relay.upkeep.archive.catalog import Layout
from relay.upkeep.archive.columns import Column
from relay.upkeep.archive.session import Session, archived, ask, template

Row = tuple[Any, ...]

GROUP_ROWS: Final = 20_000
GROUP_BYTES: Final = 12 << 20
# So many rows are asked for at once: whoever shares a core with Postgres' process waits a millisecond for them, and not
# for a group. Nobody can be told to be nice there.
PAGE_ROWS: Final = 250
# What a row costs beside its values of any length, about.
_NARROW: Final = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Some rows, each as the values of its columns."""

    rows: list[Row]
    last: tuple[str, ...]
    """The key of the last one, as Postgres writes it."""


class Walk:
    """From a row on to the end, a group at a time, each by a few statements of its own: no snapshot is held for long.

    The groups depend on the rows alone, and on where it begins.
    """

    def __init__(self, session: Session, table: str, layout: Layout) -> None:
        self._session = session
        self._table = table
        self._layout = layout
        self._wide = [place for place, column in enumerate(layout.columns) if column.kind.is_wide]
        self._narrow = _NARROW * len(layout.columns)
        self._key = [layout.columns.index(column) for column in layout.key]

    def groups(self, last: Sequence[str], rows_at_most: int) -> Iterator[Group]:
        """Those after the row with this key; from the first one on where there is none."""
        mean = 0
        while rows_at_most:
            rows, size, ended = self._group(last, min(GROUP_ROWS, rows_at_most), mean)
            if not rows:
                return
            last = self._key_of(rows[-1])
            yield Group(rows, last)
            if ended:
                return
            mean = size // len(rows)
            rows_at_most -= len(rows)

    def _group(self, last: Sequence[str], most: int, mean: int) -> tuple[list[Row], int, bool]:
        """Rows, their size, and whether they are the last ones. They are asked for as if they were of a mean size."""
        rows: list[Row] = []
        size = 0
        wide, narrow = self._wide, self._narrow
        with self._session.transaction(ours=False) as connection:
            ask(connection, "plan_along_the_key", {})
            while len(rows) < most and size < GROUP_BYTES:
                before = len(rows)
                # Rows that are asked for and do not fit are sent for nothing.
                fitting = (GROUP_BYTES - size) // max(size // before if before else mean, 1) + 1
                wanted = min(PAGE_ROWS, most - before, fitting)
                with connection.cursor().copy(self.statement(last, wanted)) as copy:
                    copy.set_types([column.kind.wire for column in self._layout.columns])
                    for row in copy.rows():
                        rows.append(row)
                        size += narrow + sum([len(row[place] or b"") for place in wide])
                        if size >= GROUP_BYTES and len(rows) - before < wanted:
                            # It is cancelled where the block is left by an error, and so is the transaction.
                            raise Rollback
                if len(rows) - before < wanted:
                    return rows, size, True
                last = self._key_of(rows[-1])
        return rows, size, False

    def _key_of(self, row: Row) -> tuple[str, ...]:
        return tuple(_text(self._layout.columns[place], row[place]) for place in self._key)

    def statement(self, last: Sequence[str], most: int) -> sql.Composed:
        """The one that reads a page."""
        comma = sql.SQL(", ")
        columns = comma.join(column.selected() for column in self._layout.columns)
        key = comma.join(sql.Identifier("r", column.name) for column in self._layout.key)
        return template(
            "page",
            columns=columns,
            table=archived(self._table),
            beyond=self._beyond(last),
            key=key,
            rows=sql.Literal(most),
        )

    def _beyond(self, last: Sequence[str]) -> sql.Composable:
        if not last:
            return sql.SQL("true")
        parts = [
            (sql.Identifier("r", column.name), column.literal(text), sql.Identifier(order))
            for column, text, order in zip(self._layout.key, last, self._layout.orders, strict=True)
        ]
        if set(self._layout.orders) == {"pg_catalog"}:
            columns, values, _ = (sql.Composed(part).join(", ") for part in zip(*parts, strict=True))
            return sql.SQL("({}) > ({})").format(columns, values)
        # In one comparison of rows all operators are of one schema.
        beyond: sql.Composable = sql.SQL("false")
        for column, value, order in reversed(parts):
            beyond = sql.SQL(
                "{0} operator({2}.>=) {1} and ({0} operator({2}.>) {1} or ({0} operator({2}.=) {1} and ({3})))"
            ).format(column, value, order, beyond)
        return beyond


def _text(column: Column, value: Any) -> str:
    """A value of a key, as it came from Postgres, to be said to it again."""
    return column.kind.from_wire(value)
