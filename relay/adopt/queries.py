"""Every statement on the old table, composed of its names and of expressions that the server has read alone.

Comparison, take-over and trigger have the text in common by which a row becomes an event: `sql/event.sql`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg import sql

from relay.adopt.expressions import alone, beside_parameters
from relay.adopt.mapping import Delete, Mapping, Update
from relay.adopt.table import OldTable

Key = tuple[str, ...]
Written = Callable[[str], sql.Composed]

_COMMA = sql.SQL(", ")
# How a field is written; the types of the others were checked, and stay.
_CASTS = {
    **dict.fromkeys(("data", "actor", "attributes"), sql.SQL("::jsonb")),
    **dict.fromkeys(("version", "occurred_at", "available_at"), sql.SQL("")),
}
_TEXT = sql.SQL("::text")


@cache
def template(name: str) -> sql.SQL:
    """The text of `sql/<name>.sql`, to be composed."""
    return sql.SQL((files("relay.adopt") / "sql" / f"{name}.sql").read_text(encoding="utf-8"))


class Queries:
    """The statements of one mapping of one table."""

    def __init__(self, table: OldTable, mapping: Mapping) -> None:
        self._table = table
        self._mapping = mapping
        self._alias = sql.Identifier(table.name)
        self._order = _COMMA.join(self._column(each.name) for each in table.ids)
        self._row = sql.SQL("({})").format(self._order)

    def page(self, after: Key | None, *, pending: bool = True, last: Key | None = None) -> sql.Composed:
        """Ids of the next `rows` rows up to the last, in their order; with `pending`, of those that wait."""
        conditions: list[sql.Composable] = [beside_parameters(self._mapping.pending)] if pending else []
        if after is not None:
            conditions.append(sql.SQL("{} > {}").format(self._row, self._key("after")))
        if last is not None:
            conditions.append(sql.SQL("{} <= {}").format(self._row, self._key("last")))
        return sql.SQL("select {} from {} where {} order by {} limit %(rows)s").format(
            self._texts(), self._rows(), _all(conditions), self._order
        )

    def newest(self, *, sent: bool) -> sql.Composed:
        """Ids of the last `rows` rows, the last first; with `sent`, of those that wait no more."""
        condition: sql.Composable = sql.SQL("true")
        if sent:
            condition = sql.SQL("not coalesce({}, false)").format(beside_parameters(self._mapping.pending))
        backwards = _COMMA.join(sql.SQL("{} desc").format(self._column(each.name)) for each in self._table.ids)
        return sql.SQL("select {} from {} where {} order by {} limit %(rows)s").format(
            self._texts(), self._rows(), condition, backwards
        )

    def count(self) -> sql.Composed:
        """How many rows wait; not more than `rows`."""
        return sql.SQL("select count(*) from (select 1 from {} where {} limit %(rows)s) as waiting").format(
            self._rows(), beside_parameters(self._mapping.pending)
        )

    def judge(self) -> sql.Composed:
        """What the chosen rows are as events, what is wrong with each, and how the outbox has it."""
        return template("judge").format(
            keys=self._texts(),
            pending=beside_parameters(self._mapping.pending),
            table=self._table.identifier,
            alias=self._alias,
            chosen=self._chosen(),
            event=self._event(beside_parameters),
            order=self._order,
        )

    def left_pending(self) -> sql.Composed | None:
        """Whether a row that waits would still wait once it is marked; None where it cannot."""
        match self._mapping.mark:
            case Delete():
                return None
            case Update(assignments):
                return template("left_pending").format(
                    pending=beside_parameters(self._mapping.pending),
                    columns=_COMMA.join(
                        sql.SQL("{}::{} as {}").format(
                            beside_parameters(assignments[each.name]), raw(each.type), sql.Identifier(each.name)
                        )
                        if each.name in assignments
                        else self._column(each.name)
                        for each in self._table.columns
                    ),
                    table=self._table.identifier,
                    alias=self._alias,
                )

    def lock(self) -> sql.Composed:
        """The chosen rows that still wait, locked, in their order; who has one of them is waited for."""
        return sql.SQL("select {} from {} where {} and {} order by {} for update").format(
            self._texts(), self._rows(), self._chosen(), beside_parameters(self._mapping.pending), self._order
        )

    def emit(self) -> sql.Composed:
        """Have outbox_emit store the chosen rows; answer how many it stored."""
        return template("emit").format(
            order=self._order,
            table=self._table.identifier,
            alias=self._alias,
            chosen=self._chosen(),
            event=self._event(beside_parameters),
            unknown=self._unknown(),
        )

    def mark(self) -> sql.Composed:
        """Mark the chosen rows; answer for each whether it still waits."""
        return self._marking(self._chosen(), beside_parameters)

    def mark_one(self) -> sql.Composed:
        """The same for the row whose ids are the arguments of a function."""
        return self._marking(sql.SQL("{} = ({})").format(self._row, self._numbers()), alone)

    def new_ids(self) -> sql.Composed:
        """The ids of the row of a trigger."""
        return _COMMA.join(sql.SQL("new.{}").format(sql.Identifier(each.name)) for each in self._table.ids)

    def emit_one(self) -> sql.Composed:
        """For the row whose ids are the arguments of a function: whether it waited, and its place in the outbox."""
        return template("emit_one").format(
            unknown=self._unknown(),
            pending=alone(self._mapping.pending),
            event=self._event(alone),
            table=self._table.identifier,
            alias=self._alias,
            row=self._row,
            numbers=self._numbers(),
        )

    def values(self, keys: Sequence[Key]) -> dict[str, Any]:
        """The parameters that choose rows by their ids, which are in their order."""
        chosen = {f"chosen_{place}": [key[place] for key in keys] for place in range(len(self._table.ids))}
        return {**chosen, **self.key("first", keys[0]), **self.key("last", keys[-1])}

    @staticmethod
    def key(name: str, key: Key | None) -> dict[str, str]:
        """The parameters of one id, if there is one."""
        return {f"{name}_{place}": value for place, value in enumerate(key or ())}

    def _numbers(self) -> sql.Composed:
        return _COMMA.join(raw(f"${number}") for number in range(1, len(self._table.ids) + 1))

    def _marking(self, chosen: sql.Composable, written: Written) -> sql.Composed:
        match self._mapping.mark:
            case Delete():
                return sql.SQL("delete from {} where {} returning false").format(self._rows(), chosen)
            case Update(assignments):
                changes = _COMMA.join(
                    sql.SQL("{} = {}").format(sql.Identifier(name), written(expression))
                    for name, expression in assignments.items()
                )
                return sql.SQL("update {} set {} where {} returning coalesce({}, false)").format(
                    self._rows(), changes, chosen, written(self._mapping.pending)
                )

    def _event(self, written: Written) -> sql.Composed:
        columns = _COMMA.join(
            sql.SQL("{}{} as {}").format(written(expression), _CASTS.get(field, _TEXT), sql.Identifier(field))
            for field, expression in self._mapping.fields.items()
        )
        fields = _COMMA.join(
            sql.SQL("({}, to_jsonb(adopt_row.{}))").format(sql.Literal(field), sql.Identifier(field))
            for field in self._mapping.fields
        )
        return template("event").format(columns=columns, fields=fields)

    def _unknown(self) -> sql.Composable:
        return template("unknown").format() if "event_id" in self._mapping.fields else sql.SQL("true")

    def _chosen(self) -> sql.Composed:
        names = [sql.Identifier(f"chosen_{place}") for place in range(len(self._table.ids))]
        return template("chosen").format(
            row=self._row,
            first=self._key("first"),
            last=self._key("last"),
            casts=_COMMA.join(
                sql.SQL("adopt_chosen.{}::{}").format(name, raw(each.type))
                for name, each in zip(names, self._table.ids, strict=True)
            ),
            arrays=_COMMA.join(
                sql.SQL("{}::text[]").format(sql.Placeholder(f"chosen_{place}")) for place in range(len(names))
            ),
            names=_COMMA.join(names),
        )

    def _key(self, name: str) -> sql.Composed:
        return sql.SQL("({})").format(
            _COMMA.join(
                sql.SQL("{}::{}").format(sql.Placeholder(f"{name}_{place}"), raw(each.type))
                for place, each in enumerate(self._table.ids)
            )
        )

    def _texts(self) -> sql.Composed:
        return _COMMA.join(sql.SQL("{}::text").format(self._column(each.name)) for each in self._table.ids)

    def _rows(self) -> sql.Composed:
        return sql.SQL("{} as {}").format(self._table.identifier, self._alias)

    def _column(self, name: str) -> sql.Identifier:
        """Always with its table: a name alone may be that of what is selected."""
        return sql.Identifier(self._table.name, name)


def raw(text: str) -> sql.Composable:
    """What the catalogue wrote, or we did."""
    return sql.SQL(text)


def _all(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" and ").join(conditions) if conditions else sql.SQL("true")
