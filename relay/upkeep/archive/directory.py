"""Archives in a directory of this machine, or of one that it has mounted."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from relay.errors import ArchiveError
from relay.kernel.whole_files import SUFFIX, part_beside, sync
from relay.upkeep.archive.store import Check, in_words


class Directory:
    """Files are written beside their names, and then renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def shown(self) -> str:
        """Its path."""
        return str(self._root)

    @contextmanager
    def draft(self, folder: str) -> Iterator["_Part"]:
        """A file to write, which is gone at the end of the block unless it was kept."""
        place = self._root / folder
        with in_words(f"a file of {folder}", self.shown):
            self._make(place)
            _clear(place)
            with part_beside(place / "file") as part, part.open("xb") as file:
                # Whoever finds it can tell that somebody writes it.
                fcntl.flock(file, fcntl.LOCK_EX)
                yield _Part(self._root, part, file)

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """A file that was kept, from its beginning."""
        with in_words(name, self.shown), (self._root / name).open("rb") as file:
            yield file

    def _make(self, place: Path) -> None:
        if not self._root.is_dir():
            # To make it would be to write beside a volume that is not mounted.
            raise ArchiveError(
                f"there is no directory {self.shown}, which ARCHIVE_BUCKET names; mount it or make it, and call again"
            )
        if not place.is_dir():
            place.mkdir(exist_ok=True)
            sync(self._root)


class _Part:
    """One that is being written."""

    def __init__(self, root: Path, part: Path, file: BinaryIO) -> None:
        self.file = file
        self._root = root
        self._part = part

    def keep(self, name: str, check: Check) -> None:
        """Have it under its name."""
        check()
        self.file.flush()
        os.fsync(self.file.fileno())
        place = self._root / name
        self._part.replace(place)
        sync(place.parent)


def _clear(folder: Path) -> None:
    """Remove what a process that was killed has left half written."""
    for part in folder.glob(f".*{SUFFIX}"):
        # Another process may have removed it, or writes it.
        with suppress(FileNotFoundError, BlockingIOError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
