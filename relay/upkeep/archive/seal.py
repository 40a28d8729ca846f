"""Setting a month aside: from one moment on, nobody writes to its table."""

import random
import time
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any, Final

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.errors import ArchiveError, ConfigurationError
from relay.upkeep.archive import catalog, crash_points, months, names, record
from relay.upkeep.archive.catalog import Partition
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.record import Export
from relay.upkeep.archive.session import Session, archived, ask, template
from relay.upkeep.archive.watch import Watch

# Whoever writes to the archive waits behind us for as long as we wait.
_LOCK_TIMEOUT: Final = "1s"
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.5

Sleep = Callable[[float], None]


def due(session: Session, origin: str, month: date | None) -> list[Partition]:
    """The months that are to be sealed: the one that is named, or all before the newest that has rows."""
    there = catalog.partitions(session, origin)
    if month is not None:
        return [partition for partition in there if partition.month == month]
    newest = next((partition.month for partition in reversed(there) if _has_rows(session, partition)), None)
    return [partition for partition in there if newest is not None and partition.month < newest]


def seal(session: Session, origin: str, partition: Partition, watch: Watch, sleep: Sleep = time.sleep) -> None:
    """Detach a partition, and give it the name of a part. Raises ArchiveError where somebody holds it for too long."""
    _insist(lambda: _seal(session, origin, partition), partition.name, watch, sleep)
    crash_points.reached(Point.SEAL_AFTER)


def begin_again(session: Session, export: Export, watch: Watch, sleep: Sleep = time.sleep) -> None:
    """Have the files of a part count no more, and nobody write to its table. Raises ArchiveError as `seal` does."""
    _insist(lambda: _begin_again(session, export), export.sealed, watch, sleep)


def is_frozen(connection: psycopg.Connection[Any], sealed: str) -> bool:
    """Whether nobody can have changed a row of a sealed table."""
    return bool(ask(connection, "frozen", {"name": sealed}))


def _insist(change: Callable[[], None], name: str, watch: Watch, sleep: Sleep) -> None:
    for attempt in range(_ATTEMPTS):
        watch.check()
        try:
            change()
        except (pg.LockNotAvailable, pg.DeadlockDetected) as error:
            if attempt + 1 == _ATTEMPTS:
                raise ArchiveError(
                    f"archive.{name} could not be sealed: another transaction has held it each time in "
                    f"{_ATTEMPTS} attempts; end it (pg_locks names it), and call again. Nothing was changed"
                ) from error
            sleep(_PAUSE * random.uniform(0.5, 1.5))  # noqa: S311 -- so that two do not meet again
        else:
            return


def _seal(session: Session, origin: str, partition: Partition) -> None:
    with session.transaction(lock_timeout=_LOCK_TIMEOUT) as connection:
        (row,) = ask(connection, "next_part", {"origin": origin, "month": partition.month})
        (part,) = row.values()
        sealed = names.of_part(catalog.table_of(origin), partition.month, part)
        here = archived(partition.name)
        try:
            connection.execute(template("detach", parent=archived(partition.parent), partition=here))
            connection.execute(template("rename", partition=here, sealed=sql.Identifier(sealed)))
            connection.execute(template("freeze", sealed=archived(sealed)))
        except pg.DuplicateTable as error:
            raise ConfigurationError(
                f"there is a table archive.{sealed}, and that is what {months.written(partition.month)} of {origin} is "
                "to be called once it is sealed; give it another name. Nothing was changed"
            ) from error
        record.begin(connection, origin, partition.month, part, sealed)
        crash_points.reached(Point.SEAL_BEFORE)


def _begin_again(session: Session, export: Export) -> None:
    # In one transaction: a table that is frozen says that its files have what is in it.
    with session.transaction(lock_timeout=_LOCK_TIMEOUT) as connection:
        if not is_frozen(connection, export.sealed):
            connection.execute(template("freeze", sealed=archived(export.sealed)))
        record.forget_files(connection, export)


def _has_rows(session: Session, partition: Partition) -> bool:
    with session.transaction() as connection:
        found = connection.execute(template("any_row", table=archived(partition.name))).fetchone()
    return found == (True,)


def named(partitions: Iterable[Partition]) -> str:
    """Their months, for a sentence."""
    return ", ".join(months.written(partition.month) for partition in partitions) or "none"
