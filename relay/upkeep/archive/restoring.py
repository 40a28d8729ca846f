"""A month's rows, out of its files and into a table, all of them or none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.errors import ArchiveError, ConfigurationError
from relay.kernel.failure import told
from relay.upkeep.archive import catalog, crash_points
from relay.upkeep.archive.columns import Column
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.parquet import Reader
from relay.upkeep.archive.reading import read_back
from relay.upkeep.archive.record import Export
from relay.upkeep.archive.session import Session, do, template
from relay.upkeep.archive.store import Store
from relay.upkeep.archive.watch import Watch
from relay.upkeep.table_name import TableName

_LOCK_TIMEOUT = "5s"


def restore(session: Session, store: Store, parts: Sequence[Export], into: TableName, watch: Watch) -> int:
    """Fill a table, which is made where there is none, and must be empty. Answers with the number of rows."""
    there = catalog.oid_of(session, into.schema, into.name)
    columns = _wanted(store, parts, watch) if there is None else catalog.columns(session, there)
    restored = 0
    try:
        with session.transaction(ours=False, lock_timeout=_LOCK_TIMEOUT) as connection:
            # A file may take long to arrive.
            do(connection, "hold", {})
            if there is None:
                _make(connection, into, columns)
            else:
                _require_empty(connection, into)
            for export in parts:
                for file in export.files:
                    with read_back(store, export, file, watch) as reader:
                        restored += _fill(connection, into, columns, reader, watch, restored)
            crash_points.reached(Point.RESTORE_BEFORE)
    except pg.LockNotAvailable as error:
        raise ArchiveError(f"{into} is in use; nothing was restored, call again") from error
    except (pg.DataError, pg.IntegrityError, pg.UndefinedObject, pg.InvalidSchemaName, pg.DuplicateTable) as error:
        raise ArchiveError(
            f"{into} does not take the rows: {told(error)}; nothing was restored. Name with --into a table of your own "
            "that does, in which text columns take whatever type there is no more"
        ) from error
    return restored


def _wanted(store: Store, parts: Sequence[Export], watch: Watch) -> list[Column]:
    """All columns of the parts, each as the last part has it; a later part may have more of them."""
    found: dict[str, Column] = {}
    of_all: set[str] | None = None
    for export in parts:
        for file in export.files[:1]:
            with read_back(store, export, file, watch) as reader:
                found |= {column.name: column for column in reader.columns}
                names = {column.name for column in reader.columns}
                of_all = names if of_all is None else of_all & names
    if not found:
        raise ArchiveError("the month has no row, and so nothing says which columns it had; nothing was restored")
    return [replace(column, not_null=column.not_null and column.name in (of_all or ())) for column in found.values()]


def _make(connection: psycopg.Connection[Any], into: TableName, columns: Sequence[Column]) -> None:
    made = sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            column.identifier, sql.SQL(column.type), sql.SQL(" not null" if column.not_null else "")
        )
        for column in columns
    )
    connection.execute(template("make_table", table=into.sql, columns=made))


def _require_empty(connection: psycopg.Connection[Any], into: TableName) -> None:
    connection.execute(template("lock_empty", table=into.sql))
    if connection.execute(template("any_row", table=into.sql)).fetchone() != (False,):
        raise ConfigurationError(
            f"{into} has rows, and a month comes back into a table of its own: name one that is not there yet with "
            "--into. Nothing was restored"
        )


def _fill(  # noqa: PLR0913, PLR0917 -- what a file is copied by
    connection: psycopg.Connection[Any],
    into: TableName,
    columns: Sequence[Column],
    reader: Reader,
    watch: Watch,
    before: int,
) -> int:
    known = {column.name: column for column in columns}
    if lacking := [column.name for column in reader.columns if column.name not in known]:
        raise ConfigurationError(
            f"{into} has no column {', '.join(map(repr, lacking))}, which the rows have; add it, or name another table "
            "with --into. Nothing was restored"
        )
    # What Postgres generates it takes from nobody.
    places = [place for place, column in enumerate(reader.columns) if not known[column.name].generated]
    names = sql.SQL(", ").join(reader.columns[place].identifier for place in places)
    rows = 0
    with connection.cursor().copy(template("fill", table=into.sql, columns=names)) as copy:
        for records in reader.records():
            watch.check()
            for record in records:
                copy.write_row([record[place] for place in places])
            rows += len(records)
            watch.tell("rows restored", before + rows)
    return rows
