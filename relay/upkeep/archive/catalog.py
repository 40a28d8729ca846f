"""What there is in the schema archive: tables that rows are moved to, their months, and sealed tables."""

from dataclasses import dataclass
from datetime import date

from relay.errors import ConfigurationError
from relay.upkeep.archive.columns import Column, Kind
from relay.upkeep.archive.session import Session, ask
from relay.upkeep.table_name import TableName


@dataclass(frozen=True, slots=True)
class Partition:
    """A month that is still written to."""

    name: str
    parent: str
    month: date
    estimate: int | None
    """About how many rows, as far as Postgres knows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the rows of a table are made of."""

    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    orders: tuple[str, ...]
    """In which schema the operators are that a column of the key is ordered by."""


def origins(session: Session) -> list[str]:
    """The tables whose rows are archived, or were."""
    return [str(row["origin"]) for row in session.rows("origins")]


def origin_of(session: Session, table: str) -> str:
    """Which of them is meant by its own name, or by its archive's. Raises ConfigurationError."""
    known = origins(session)
    if table in known:
        return table
    found = [origin for origin in known if table in _names(origin)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(f"table {table!r} may be {' or '.join(found)}; name it with its schema")
    there = f"there are: {', '.join(known)}" if known else "nothing was archived yet"
    raise ConfigurationError(f"nothing was archived of a table {table!r}; {there}")


def table_of(origin: str) -> str:
    """What its archive is called, and its files begin with."""
    try:
        return TableName.of(origin).name
    except ValueError:  # a comment that somebody has written
        return origin


def partitions(session: Session, origin: str) -> list[Partition]:
    """The months that wait, the oldest first."""
    return [
        Partition(row["name"], row["parent"], row["month"], row["estimate"])
        for row in session.rows("partitions", origin=origin)
    ]


def oid_of(session: Session, schema: str, name: str) -> int | None:
    """The table of this name. Raises ConfigurationError where it is something else."""
    for row in session.rows("table_at", schema=schema, name=name):
        if row["kind"] not in {"r", "p"}:
            raise ConfigurationError(f"{schema}.{name} is no table but a view, a sequence or the like; name another")
        return int(row["oid"])
    return None


def columns(session: Session, oid: int) -> list[Column]:
    """Those of a table, in its order."""
    # The names of types have their schema then.
    with session.transaction(ours=False) as connection:
        rows = ask(connection, "columns", {"table": oid})
    return [
        Column(
            row["name"], row["type"], Kind.of(row["type_name"], row["type_schema"]), row["not_null"], row["generated"]
        )
        for row in rows
    ]


def layout(session: Session, oid: int, name: str) -> Layout:
    """The layout of a table that is exported. Raises ConfigurationError where its rows have no order."""
    found = columns(session, oid)
    by_name = {column.name: column for column in found}
    parts = session.rows("key", table=oid)
    key = tuple(by_name[row["name"]] for row in parts)
    if not key:
        raise ConfigurationError(
            f"archive.{name} has no primary key, along which it is exported; "
            "add one: alter table ... add primary key (...)"
        )
    return Layout(tuple(found), key, tuple(row["order_schema"] for row in parts))


def _names(origin: str) -> set[str]:
    name = table_of(origin)
    return {name, f"archive.{name}"}
