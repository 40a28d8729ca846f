"""The end of a sealed table: its rows are in files that were read back a moment before."""

from psycopg import errors as pg

from relay.errors import ArchiveError
from relay.kernel.failure import told
from relay.upkeep.archive import catalog, crash_points, record
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.reading import read_all_back
from relay.upkeep.archive.record import Export
from relay.upkeep.archive.session import ARCHIVE, Session, archived, template
from relay.upkeep.archive.store import Store
from relay.upkeep.archive.watch import Watch
from relay.upkeep.archive.writing import again

_LOCK_TIMEOUT = "5s"


def drop(  # noqa: PLR0913, PLR0917 -- each by its name
    session: Session, store: Store, export: Export, watch: Watch, by: str | None, why: str | None
) -> None:
    """Drop it, or raise ArchiveError and drop nothing. With `by`, somebody insists before it is time."""
    read_all_back(store, export, watch)
    try:
        _drop(session, export, by, why)
    except pg.LockNotAvailable as error:
        raise ArchiveError(
            f"archive.{export.sealed} was not dropped: another transaction has it in use (pg_locks names it); end it, "
            "and call again"
        ) from error
    except pg.DependentObjectsStillExist as error:
        raise ArchiveError(
            f"archive.{export.sealed} was not dropped: {told(error)}; drop what is made of it, and call again"
        ) from error
    crash_points.reached(Point.DROP_AFTER)


def _drop(session: Session, export: Export, by: str | None, why: str | None) -> None:
    there = catalog.oid_of(session, ARCHIVE, export.sealed)
    with session.transaction(lock_timeout=_LOCK_TIMEOUT) as connection:
        # Somebody may have dropped it by hand: its files are whole, and so nothing is lost.
        if there is not None:
            table = archived(export.sealed)
            connection.execute(template("lock_table").format(table=table))
            found = connection.execute(template("count_rows").format(table=table)).fetchone()
            if found != (export.rows,):
                raise ArchiveError(
                    f"archive.{export.sealed} has {found and found[0]:,} row(s), and its files have {export.rows:,}: "
                    f"somebody has written to it. Nothing was dropped; export it again: {again(export)}"
                )
            connection.execute(template("drop_table").format(table=table))
        record.drop(connection, export, by, why)
        crash_points.reached(Point.DROP_BEFORE)
