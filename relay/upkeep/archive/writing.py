"""From a sealed table to files: one after the other, each recorded when it is where it belongs."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from relay.errors import ArchiveError, InvariantError
from relay.upkeep.archive import catalog, crash_points, months, names, record
from relay.upkeep.archive.bounds import Bounds
from relay.upkeep.archive.catalog import Layout
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.parquet import Provenance, Writer
from relay.upkeep.archive.record import Export, File
from relay.upkeep.archive.rows import Group, Walk
from relay.upkeep.archive.session import Session, archived, template
from relay.upkeep.archive.store import Store
from relay.upkeep.archive.watch import Watch
from relay.upkeep.table_name import ARCHIVE


class LostTableError(ArchiveError):
    """Somebody has dropped a sealed table whose rows are in no file; other parts are not touched by that."""


def write(  # noqa: PLR0913, PLR0917 -- what an export needs
    session: Session,
    store: Store,
    export: Export,
    watch: Watch,
    kept: Callable[[File], None],
    bounds: Bounds,
) -> Export:
    """Write the files that there are not yet, and tell of each; what it answers with is recorded."""
    if (oid := catalog.oid_of(session, ARCHIVE, export.sealed)) is None:
        raise LostTableError(
            f"there is no table archive.{export.sealed}, and not all of {export.shown} was exported: bring it back "
            "from a backup of the database, or give its rows up by deleting its row of archive_exports"
        )
    layout = catalog.layout(session, oid, export.sealed)
    walk = Walk(session, export.sealed, layout)
    while (groups := _Groups(walk, export, bounds.rows)).any:
        export = _add(session, export, _written(store, export, layout, groups, watch, bounds))
        kept(export.files[-1])
    _require_all(session, export)
    record.complete(session, export)
    crash_points.reached(Point.COMPLETE_AFTER)
    return replace(export, rows=export.written)


class _Groups:
    """What comes after the files that there are."""

    def __init__(self, walk: Walk, export: Export, rows: int) -> None:
        self.before: tuple[str, ...] = export.files[-1].last if export.files else ()
        self._groups = walk.groups(self.before, rows)
        self._first = next(self._groups, None)

    @property
    def any(self) -> bool:
        """Whether there is a row."""
        return self._first is not None

    def __iter__(self) -> Iterator[Group]:
        if self._first is not None:
            yield self._first
            self._first = None
            yield from self._groups


def _written(  # noqa: PLR0913, PLR0917 -- what a file is made of
    store: Store, export: Export, layout: Layout, groups: _Groups, watch: Watch, bounds: Bounds
) -> File:
    provenance = Provenance(export.origin, export.month, export.part, len(export.files) + 1)
    table = catalog.table_of(export.origin)
    with store.draft(names.folder_of(table)) as draft:
        with Writer(draft.file, layout, provenance) as writer:
            rows, last = 0, groups.before
            for group in groups:
                watch.check()
                writer.write(group)
                rows, last = rows + len(group.rows), group.last
                watch.tell("rows exported", export.written + rows)
                crash_points.reached(Point.GROUP_AFTER)
                if writer.digest.bytes >= bounds.bytes:
                    break
        sha256, size = writer.digest.sha256, writer.digest.bytes
        name = names.of_file(table, export.month, export.part, provenance.number, sha256)
        crash_points.reached(Point.PUT_BEFORE)
        draft.keep(name, watch.check)
    crash_points.reached(Point.PUT_AFTER)
    return File(name, rows, size, sha256, last)


def _add(session: Session, export: Export, file: File) -> Export:
    record.add_file(session, export, file)
    crash_points.reached(Point.RECORD_AFTER)
    return replace(export, files=(*export.files, file))


def _require_all(session: Session, export: Export) -> None:
    with session.transaction() as connection:
        found = connection.execute(template("count_rows", table=archived(export.sealed))).fetchone()
    if found != (export.written,):
        raise InvariantError(
            f"archive.{export.sealed} has {found and found[0]:,} row(s), and {export.written:,} were exported: "
            f"somebody has written to it since it was sealed. Export it again: {again(export)}"
        )


def again(export: Export) -> str:
    """The command that exports a part anew."""
    table, month = shlex.quote(export.origin), months.written(export.month)
    return f"python -m relay archive export --table {table} --month {month} --again"
