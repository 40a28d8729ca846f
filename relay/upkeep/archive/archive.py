"""All that is done with archives, for a command and for a job. Everything blocks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.util import find_spec

from relay.errors import ArchiveError, ConfigurationError
from relay.extras import installed_by
from relay.upkeep.archive import catalog, crash_points, months, names, record, seal
from relay.upkeep.archive.bounds import Bounds
from relay.upkeep.archive.catalog import Partition
from relay.upkeep.archive.crash_points import Point
from relay.upkeep.archive.lock import alone
from relay.upkeep.archive.place import Place
from relay.upkeep.archive.record import Export, File, Insistence, State
from relay.upkeep.archive.session import Connect, Session
from relay.upkeep.archive.store import PlaceAwayError, Store
from relay.upkeep.archive.watch import StoppedError, Watch
from relay.upkeep.table_name import ARCHIVE, TableName

_NOBODY = Watch()
_BOUNDS = Bounds()


@dataclass(slots=True)
class Done:
    """What a call has done of one table, also where it did not come to its end."""

    origin: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    verified: list[Export] = field(default_factory=list)
    dropped: list[Export] = field(default_factory=list)
    kept: list[Export] = field(default_factory=list)
    """Those whose time to be dropped has not come; of a month that is named, also what was dropped before."""
    faults: list[ArchiveError] = field(default_factory=list)
    """What kept a part from being done; other parts were."""
    stopped: bool = False
    """Whether whoever watches has ended it."""

    @property
    def any(self) -> bool:
        """Whether anything was achieved."""
        return bool(self.files or self.verified or self.dropped)

    def keep(self, file: File, watch: Watch) -> None:
        """One more file is where it belongs."""
        self.files += 1
        self.rows += file.rows
        self.bytes += file.bytes
        watch.count("exported_files", 1)
        watch.count("exported_rows", file.rows)
        watch.count("exported_bytes", file.bytes)


@dataclass(frozen=True, slots=True)
class Standing:
    """One table: what was sealed of it, and which months wait."""

    origin: str
    exports: list[Export]
    waiting: list[Partition]


class Archive:
    """The archives of one database, and the place of their files."""

    def __init__(self, connect: Connect, schema: str, place: Place, bounds: Bounds = _BOUNDS) -> None:
        self._connect = connect
        self._schema = schema
        self._place = place
        self._bounds = bounds

    def require(self) -> None:
        """Raise ConfigurationError where files could be neither written nor read."""
        _require_parquet()
        self._place.open().require()

    @property
    def role(self) -> str:
        """As which role it is connected to the database."""
        with self._session() as session:
            return session.user

    def origins(self, table: str | None = None) -> list[str]:
        """All tables that rows were archived of, or the one that is meant. Raises ConfigurationError."""
        with self._session() as session:
            return catalog.origins(session) if table is None else [catalog.origin_of(session, table)]

    def standing(self, origin: str) -> Standing:
        """What there is of a table."""
        with self._session() as session:
            return Standing(origin, record.exports(session, origin), catalog.partitions(session, origin))

    def export(self, origin: str, month: date | None = None, *, again: bool = False, watch: Watch = _NOBODY) -> Done:
        """Seal the months that are over, or the one that is named; write their files, and read them back."""
        done = Done(origin)
        with self._at_work(origin, watch, done) as (session, store, careful):
            _require_month(session, origin, month)
            _require_writable(store, origin)
            if again:
                _begin_again(session, record.exports(session, origin, month), careful)
            self._finish(session, store, origin, month, done, careful)
            for partition in seal.due(session, origin, month):
                seal.seal(session, origin, partition, careful)
                self._finish(session, store, origin, partition.month, done, careful)
        return done

    def verify(self, origin: str, month: date | None = None, watch: Watch = _NOBODY) -> Done:
        """Read all files back, those of dropped tables, too."""
        done = Done(origin)
        with self._at_work(origin, watch, done) as (session, store, careful):
            for export in _exports(session, origin, month):
                if export.rows is not None:
                    with _counted(done):
                        _verify(session, store, export, careful)
                        done.verified.append(export)
        return done

    def drop(
        self,
        origin: str,
        month: date | None = None,
        insistence: Insistence | None = None,
        watch: Watch = _NOBODY,
    ) -> Done:
        """Drop the sealed tables whose time has come; with `insistence`, all that were verified."""
        _require_parquet()
        from relay.upkeep.archive.dropping import drop  # noqa: PLC0415 -- an extra, as below

        done = Done(origin)
        with self._at_work(origin, watch, done) as (session, store, careful):
            for export in _exports(session, origin, month):
                if export.state is State.VERIFIED and (export.eligible or insistence):
                    with _counted(done):
                        drop(session, store, export, careful, None if export.eligible else insistence)
                        done.dropped.append(export)
                        careful.count("exports_dropped", 1)
                elif month is not None or export.state is not State.DROPPED:
                    done.kept.append(export)
        return done

    def restored(self, origin: str, month: date) -> TableName:
        """Where the rows of a month come back to, unless somebody names another table."""
        return TableName(ARCHIVE, names.of_restored(catalog.table_of(origin), month))

    def restore(
        self, origin: str, month: date, *, into: TableName, part: int | None = None, watch: Watch = _NOBODY
    ) -> int:
        """Bring the rows of a month back into a table. Answers with their number."""
        _require_parquet()
        from relay.upkeep.archive.restoring import restore  # noqa: PLC0415 -- an extra, as below

        with self._session() as session:
            parts = _exports(session, origin, month, part)
            if lacking := [export.shown for export in parts if export.rows is None]:
                raise ConfigurationError(
                    f"{', '.join(lacking)} is not exported to its end; run: python -m relay archive export, or name "
                    "another with --part"
                )
            return restore(session, self._place.open(), parts, into, watch)

    def _finish(  # noqa: PLR0913, PLR0917 -- what the steps of a part need
        self, session: Session, store: Store, origin: str, month: date | None, done: Done, watch: Watch
    ) -> None:
        """Bring all that is sealed to its verification."""
        from relay.upkeep.archive.reading import DamageError  # noqa: PLC0415 -- an extra, as below
        from relay.upkeep.archive.writing import LostTableError, write  # noqa: PLC0415 -- the same

        for export in record.exports(session, origin, month):
            if export.state is not State.SEALED:
                continue
            try:
                written = _uncorrected(session, export, watch)
                if written.rows is None:
                    written = write(session, store, written, watch, lambda file: done.keep(file, watch), self._bounds)
                _verify(session, store, written, watch)
            except (LostTableError, DamageError) as error:
                done.faults.append(error)
                continue
            done.verified.append(written)
            watch.count("exports_verified", 1)

    @contextmanager
    def _at_work(self, origin: str, watch: Watch, done: Done) -> Iterator[tuple[Session, Store, Watch]]:
        """The table's lock, a session to work with, and the place; who watches is asked, and the lock as well."""
        _require_parquet()
        store = self._place.open()
        store.require()
        with alone(self._connect, self._schema, origin) as ping, self._session() as session:

            def check() -> None:
                watch.check()
                ping(session)

            try:
                yield session, store, replace(watch, check=check)
            except StoppedError:
                done.stopped = True

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with Session.open(self._connect, self._schema) as session:
            session.require_tables()
            yield session


def _exports(session: Session, origin: str, month: date | None, part: int | None = None) -> list[Export]:
    """What was exported, of a month where one is named. Raises ConfigurationError where that is nothing."""
    found = [export for export in record.exports(session, origin, month) if part in {None, export.part}]
    if month is not None and not found:
        raise ConfigurationError(
            f"nothing was exported of {origin} in {months.written(month)}"
            f"{f' as part {part}' if part else ''}; see: python -m relay archive status"
        )
    return found


def _begin_again(session: Session, exports: Sequence[Export], watch: Watch) -> None:
    """Have the files of all parts that are not dropped count no more."""
    if exports and all(export.state is State.DROPPED for export in exports):
        raise ArchiveError(
            f"{', '.join(export.shown for export in exports)} was dropped, and its rows are nowhere else than in its "
            "files: bring those that are not whole back from a copy or from an earlier version of the object. Nothing "
            "was changed"
        )
    there = [export for export in exports if export.state is not State.DROPPED]
    for export in there:
        if catalog.oid_of(session, ARCHIVE, export.sealed) is None:
            raise ArchiveError(
                f"there is no table archive.{export.sealed}, from which {export.shown} would be exported again; its "
                "files are what there is, bring back a copy of those that are not whole. Nothing was changed"
            )
    for export in there:
        seal.begin_again(session, export, watch)


def _uncorrected(session: Session, export: Export, watch: Watch) -> Export:
    """A part to go on with: from its first row on, where somebody may have corrected one that is in a file."""
    with session.transaction() as connection:
        frozen = seal.is_frozen(connection, export.sealed)
    if frozen or catalog.oid_of(session, ARCHIVE, export.sealed) is None:
        return export
    seal.begin_again(session, export, watch)
    return replace(export, rows=None, files=())


def _verify(session: Session, store: Store, export: Export, watch: Watch) -> None:
    from relay.upkeep.archive.reading import read_all_back  # noqa: PLC0415 -- an extra, as below

    read_all_back(session, store, export, watch)
    crash_points.reached(Point.VERIFY_BEFORE)
    if export.state is State.SEALED:
        record.verify(session, export)
        crash_points.reached(Point.VERIFY_AFTER)


@contextmanager
def _counted(done: Done) -> Iterator[None]:
    """What is wrong with one part is told, and the others have their turn."""
    try:
        yield
    except ArchiveError as error:
        done.faults.append(error)


def _require_writable(store: Store, origin: str) -> None:
    try:
        store.require_writable(names.folder_of(catalog.table_of(origin)))
    except ArchiveError as error:
        raise PlaceAwayError(f"{error}. Nothing was changed") from error


def _require_month(session: Session, origin: str, month: date | None) -> None:
    if month is None or record.exports(session, origin, month):
        return
    waiting = catalog.partitions(session, origin)
    if all(partition.month != month for partition in waiting):
        raise ConfigurationError(
            f"nothing was archived of {origin} in {months.written(month)}; months that wait: {seal.named(waiting)}"
        )


def _require_parquet() -> None:
    """Raise ConfigurationError where what reads and writes the files is not installed."""
    if find_spec("pyarrow") is None:
        raise ConfigurationError(
            "archives are Parquet files, which need the package 'pyarrow', which is not installed; "
            f"run: {installed_by('archive')}"
        )
