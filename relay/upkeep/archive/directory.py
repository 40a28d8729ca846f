"""Archives in a directory of this machine, or of one that it has mounted."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from relay.errors import ConfigurationError
from relay.kernel.failure import told
from relay.kernel.whole_files import SUFFIX, part_beside, sync
from relay.upkeep.archive.store import Check, UnusablePlaceError, in_words

# Not of this moment: somebody has to change the place, or name another one.
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENOTSUP}


class Directory:
    """Files are written beside their names, and then renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def shown(self) -> str:
        """Its path."""
        return str(self._root)

    def require(self) -> None:
        """Raise UnusablePlaceError where it is not there; to make it would be to write beside an unmounted volume."""
        if not os.path.isdir(self._root):  # noqa: PTH112 -- False also for one that may not be looked at
            raise UnusablePlaceError(
                f"there is no directory {self.shown}, which ARCHIVE_BUCKET names; mount it or make it, and call again"
            )

    def require_writable(self, folder: str) -> None:
        """Try it, with a file that nobody sees."""
        place = self._root / folder
        with in_words(f"a file of {folder}", self.shown):
            try:
                self._make(place)
                with TemporaryFile(dir=place):
                    return
            except OSError as error:
                if error.errno not in _LASTING:
                    raise
                text = (
                    f"no file can be written to {place}: {error.strerror or told(error)}; let user number "
                    f"{os.geteuid()} write there, or name another directory as ARCHIVE_BUCKET. Nothing was changed"
                )
                of_all = error.errno == errno.EROFS or not place.is_dir()
                raise (UnusablePlaceError(text) if of_all else ConfigurationError(text)) from error

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
        self.require()
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
