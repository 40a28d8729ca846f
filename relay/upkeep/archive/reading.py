"""Files as they come back from where they were put: to the last byte what was written, or an error."""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO

from relay.errors import ArchiveError, ConfigurationError
from relay.upkeep.archive import record
from relay.upkeep.archive.parquet import Reader
from relay.upkeep.archive.record import Export, File, State
from relay.upkeep.archive.session import Session
from relay.upkeep.archive.store import CHUNK, MissingFileError, Store, in_words
from relay.upkeep.archive.watch import Watch
from relay.upkeep.archive.writing import again


class DamageError(ArchiveError):
    """A file is missing, or is not what was written; other parts are not touched by that."""


@contextmanager
def read_back(store: Store, export: Export, file: File, watch: Watch) -> Iterator[Reader]:
    """A copy of the file, which is what was recorded. Raises DamageError where it is not."""
    with _in_words_of_a_copy(file), TemporaryFile() as copy:
        try:
            sha256 = _copied(store, file, copy, watch)
        except MissingFileError as error:
            raise DamageError(f"{error}; {_remedy(export)}") from error
        if sha256 != file.sha256:
            raise DamageError(
                f"{file.name} at {store.shown} is not what was written: its sha256 is {sha256[:12]}... and not "
                f"{file.sha256[:12]}...; {_remedy(export)}"
            )
        copy.seek(0)
        reader = Reader(copy, file.name)
        if reader.rows != file.rows:
            raise DamageError(
                f"{file.name} at {store.shown} has {reader.rows:,} row(s) and not {file.rows:,}; {_remedy(export)}"
            )
        yield reader


def read_all_back(session: Session, store: Store, export: Export, watch: Watch) -> None:
    """Read each file to its end. Raises DamageError for the first that is not as it was written, which is recorded."""
    try:
        for number, file in enumerate(export.files, 1):
            with read_back(store, export, file, watch):
                watch.tell(f"of {len(export.files)} file(s) read back", number)
    except DamageError as error:
        if export.state is State.VERIFIED:
            _doubt(session, export, error)
        raise


def _doubt(session: Session, export: Export, damage: DamageError) -> None:
    try:
        record.doubt(session, export)
    except ConfigurationError as error:
        # Whoever may only read is told of the file all the same.
        raise DamageError(f"{damage}. Its part still counts as verified: {error}") from damage


def _copied(store: Store, file: File, copy: BinaryIO, watch: Watch) -> str:
    sha256 = hashlib.sha256()
    with store.reading(file.name) as source:
        while chunk := source.read(CHUNK):
            watch.check()
            sha256.update(chunk)
            with _in_words_of_a_copy(file):
                copy.write(chunk)
    return sha256.hexdigest()


def _in_words_of_a_copy(file: File) -> AbstractContextManager[None]:
    return in_words(f"a copy of {file.name}", gettempdir())


def _remedy(export: Export) -> str:
    if export.state is State.DROPPED:
        return "its rows are nowhere else: bring the file back from a copy or from an earlier version of the object"
    return f"its rows are in archive.{export.sealed} still, export them anew: {again(export)}"
