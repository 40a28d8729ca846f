"""What `archive_exports` knows of a sealed table and of its files."""

from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from relay.errors import InvariantError
from relay.upkeep.archive import months
from relay.upkeep.archive.session import Row, Session, ask, do

# So long the rows are in the database beside their files.
WAIT: Final = timedelta(days=30)


class State(Enum):
    """How far a sealed table is."""

    SEALED = "sealed"  # its files are being written, or wait to be read back
    VERIFIED = "verified"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class File:
    """One file, as it was when it was written."""

    name: str
    rows: int
    bytes: int
    sha256: str
    last: tuple[str, ...]
    """The key of its last row, each column as Postgres writes it."""


@dataclass(frozen=True, slots=True)
class Insistence:
    """Somebody does not wait until a drop is due, and says so."""

    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Export:
    """One part of a month."""

    id: int
    origin: str
    month: date
    part: int
    sealed: str
    """The table in schema archive."""
    state: State
    rows: int | None
    """Of all files, as soon as all are written."""
    files: tuple[File, ...]
    sealed_at: datetime
    verified_at: datetime | None
    drop_eligible_at: datetime | None
    eligible: bool | None
    """Whether that has come, by the clock of the database."""
    dropped_at: datetime | None
    dropped_by: str | None
    dropped_why: str | None

    @property
    def shown(self) -> str:
        """In errors and lines."""
        return f"{self.origin} {months.written(self.month)} part {self.part}"

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.bytes for file in self.files)

    @property
    def written(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)

    @classmethod
    def of(cls, row: Row) -> "Export":
        """As the table has it."""
        files = tuple(File(**{**file, "last": tuple(file["last"])}) for file in row["files"])
        return cls(**{**row, "state": State(row["state"]), "files": files})


def exports(session: Session, origin: str, month: date | None = None) -> list[Export]:
    """What is recorded of a table, the oldest part first."""
    return [Export.of(row) for row in session.rows("exports", origin=origin, month=month)]


def begin(connection: psycopg.Connection[Any], origin: str, month: date, part: int, sealed: str) -> None:
    """Record a table that is sealed in this transaction."""
    do(connection, "record_sealed", {"origin": origin, "month": month, "part": part, "sealed": sealed})


def add_file(session: Session, export: Export, file: File) -> None:
    """Record that a file is where it belongs."""
    _one(session, "record_file", export, file=Jsonb(asdict(file)), count=len(export.files))


def complete(session: Session, export: Export) -> None:
    """Record that there are no rows but those of the files."""
    _one(session, "record_complete", export, rows=export.written, count=len(export.files))


def forget_files(connection: psycopg.Connection[Any], export: Export) -> None:
    """Have all be exported again, from the transaction on in which nobody can write to the table."""
    if do(connection, "record_again", {"id": export.id}) != 1:
        raise _contradicted(export, "record_again")


def verify(session: Session, export: Export) -> None:
    """Record that all files were read back as they were written."""
    values = {"id": export.id, "wait": WAIT, "rows": export.rows, "count": len(export.files)}
    with session.transaction() as connection:
        if not ask(connection, "record_verified", values):
            raise _contradicted(export, "record_verified")


def doubt(session: Session, export: Export) -> None:
    """Record that a file is not as it was when it was verified; it is verified anew once it is."""
    _one(session, "record_doubted", export)


def drop(connection: psycopg.Connection[Any], export: Export, insistence: Insistence | None) -> None:
    """Record a drop, in its own transaction; before it is time somebody has to insist."""
    by, why = (insistence.by, insistence.why) if insistence else (None, None)
    if do(connection, "record_dropped", {"id": export.id, "by": by, "why": why}) != 1:
        raise _contradicted(export, "record_dropped")


def _one(session: Session, name: str, export: Export, **values: object) -> None:
    with session.transaction() as connection:
        if do(connection, name, {"id": export.id, **values}) != 1:
            raise _contradicted(export, name)


def _contradicted(export: Export, name: str) -> InvariantError:
    return InvariantError(
        f"archive_exports has {export.shown} otherwise than {name}.sql expects: somebody else works on it without the "
        "lock, or has changed the row; nothing was recorded, call again"
    )
