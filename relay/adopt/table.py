"""The old table as the catalogue has it, and whether it can be taken over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.adopt.mapping import Mapping, Update
from relay.errors import ConfigurationError
from relay.outbox.statements import statement

TRIGGER = "outbox_adopt"
OUTBOX = "outbox_events"
_KINDS = {"r", "p"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and its type as a cast has it."""

    name: str
    type: str
    required: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class OldTable:
    """A table, the columns that identify and order its rows, and whether it is taken over already."""

    oid: int
    schema: str
    name: str
    shown: str  # as it is written in SQL
    owner: str
    ids: Sequence[Column]
    columns: Sequence[Column]
    taken_over: bool
    paged: bool  # an index has the rows in the order of the ids

    @property
    def identifier(self) -> sql.Identifier:
        """The table in a statement."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return self.shown


@dataclass(frozen=True, slots=True)
class Place:
    """Which table a name means."""

    oid: int
    schema: str
    name: str
    shown: str
    owner: str
    taken_over: bool


def placed(connection: psycopg.Connection[Any], name: str, outbox_schema: str) -> Place:
    """The table of this name, in the transaction that is open; the search_path is still the role's own."""
    try:
        found = connection.execute(statement("adopt_table"), {"table": name, "trigger": TRIGGER}).fetchone()
    except (pg.SyntaxError, pg.InvalidName, pg.FeatureNotSupported) as error:
        raise ConfigurationError(f"--table {name[:128]!r} is no name; write it like shop.events") from error
    if found is None:
        raise ConfigurationError(
            f"database {connection.info.dbname!r} has no table {name[:128]!r} for this role; "
            "name it with its schema, like shop.events"
        )
    oid, schema, relation, shown, kind, inherited, owner, taken_over = found
    if kind not in _KINDS or inherited:
        what = "has tables that inherit from it" if inherited else "is no table"
        raise ConfigurationError(f"--table {name[:128]!r} {what}; tables and partitioned tables can be taken over")
    if (schema, relation) == (outbox_schema, OUTBOX):
        raise ConfigurationError(f"--table {name[:128]!r} is the outbox itself; name the table that it replaces")
    return Place(oid, schema, relation, shown, owner, taken_over)


def examined(connection: psycopg.Connection[Any], place: Place, mapping: Mapping) -> OldTable:
    """The table with what is needed of it. Raises ConfigurationError where its rows cannot be told apart or ordered."""
    rows = connection.execute(statement("adopt_columns"), {"table": place.oid}).fetchall()
    columns = {row[0]: Column(*row) for row in rows}
    marked = list(mapping.mark.assignments) if isinstance(mapping.mark, Update) else []
    for option, name in [*(("--id", name) for name in mapping.ids), *(("--mark", name) for name in marked)]:
        if name not in columns:
            raise ConfigurationError(
                f"{option} names {name[:64]!r}, which {place.shown} has not; its columns are {', '.join(columns)}"
            )
    marred = next((name for name in (place.schema, place.name, *columns) if "%" in name), None)
    if marred is not None:
        raise ConfigurationError(f"{marred[:64]!r} of {place.shown} has a percent sign in its name; rename it first")
    ids = [columns[name] for name in mapping.ids]
    nullable = [each.name for each in ids if not each.required]
    if nullable:
        raise ConfigurationError(
            f"--id names {nullable[0]!r}, which may be null; a row without it has no place in the order"
        )
    keys = connection.execute(statement("adopt_keys"), {"table": place.oid}).fetchall()
    if not any(unique and key and set(key) <= set(mapping.ids) for key, unique in keys):
        raise ConfigurationError(
            f"--id {', '.join(mapping.ids)} does not tell the rows of {place.shown} apart: it has no primary "
            "key and no unique index on (some of) these columns; create one with: create unique index concurrently"
        )
    paged = any(list(key[: len(mapping.ids)]) == list(mapping.ids) for key, _ in keys)
    return OldTable(
        place.oid,
        place.schema,
        place.name,
        place.shown,
        place.owner,
        ids,
        list(columns.values()),
        place.taken_over,
        paged,
    )
