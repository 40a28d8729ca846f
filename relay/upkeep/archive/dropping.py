"""The end of a sealed table: its rows are in files that were read back a moment before."""

from psycopg import errors as pg

from relay.errors import ArchiveError
from relay.kernel.failure import told
from relay.upkeep.archive import catalog, crash_points, record
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.reading import read_all_back
from relay.upkeep.archive.record import Export, Insistence
from relay.upkeep.archive.seal import is_frozen
from relay.upkeep.archive.session import Session, archived, template
from relay.upkeep.archive.store import Store
from relay.upkeep.archive.watch import Watch
from relay.upkeep.archive.writing import again
from relay.upkeep.table_name import ARCHIVE

_LOCK_TIMEOUT = "5s"


def drop(session: Session, store: Store, export: Export, watch: Watch, insistence: Insistence | None) -> None:
    """Drop it, or raise ArchiveError and drop nothing; before it is time somebody has to insist."""
    read_all_back(session, store, export, watch)
    there = catalog.oid_of(session, ARCHIVE, export.sealed)
    with session.transaction(lock_timeout=_LOCK_TIMEOUT) as connection:
        # Somebody may have dropped it by hand: its files are whole, and so nothing is lost.
        if there is not None:
            table = archived(export.sealed)
            try:
                connection.execute(template("lock_table", table=table))
            except pg.LockNotAvailable as error:
                raise ArchiveError(
                    f"archive.{export.sealed} has been in use for {_LOCK_TIMEOUT}; nothing was dropped, call again"
                ) from error
            found = connection.execute(template("count_rows", table=table)).fetchone()
            if found != (export.rows,):
                raise ArchiveError(
                    f"archive.{export.sealed} has {found and found[0]:,} row(s), and its files have {export.rows:,}: "
                    f"somebody has written to it. Nothing was dropped; export it again: {again(export)}"
                )
            if not is_frozen(connection, export.sealed):
                raise ArchiveError(
                    f"archive.{export.sealed} lacks its constraint sealed: somebody may have changed rows since they "
                    f"were exported. Nothing was dropped; export it again: {again(export)}"
                )
            try:
                connection.execute(template("drop_table", table=table))
            except pg.DependentObjectsStillExist as error:
                raise ArchiveError(
                    f"archive.{export.sealed} has something made of it: {told(error)}. Nothing was dropped; drop that, "
                    "and call again"
                ) from error
        record.drop(connection, export, insistence)
        crash_points.reached(Point.DROP_BEFORE)
    crash_points.reached(Point.DROP_AFTER)
