"""Artifacts in a directory of this machine, or of one that it has mounted."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from consumers.storage.manifest import SUFFIX, Whole, read, written
from consumers.storage.output import digest, reading
from consumers.storage.target import Check, Published
from relay.kernel.whole_files import part_beside, sync

_LOCK = ".artifacts.lock"


class FileTarget:
    """Writes beside the final name, and then renames: under that name there is nothing, or all of it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def look(self, name: str) -> Whole | None:
        """The artifact, if it is there and whole."""
        place = self._root / name
        with _unnamed(name):
            try:
                whole = read(_manifest(place).read_bytes())
                found = place.stat()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return whole if whole and S_ISREG(found.st_mode) and found.st_size == whole.bytes else None

    def publish(self, name: str, file: Path, check: Check) -> Published:
        """Put the file there, and its manifest behind it."""
        place = self._root / name
        with _unnamed(name):
            place.parent.mkdir(parents=True, exist_ok=True)
            with part_beside(place) as part:
                with reading(file) as source:
                    whole = _filled(part, source, check)
                with _alone_in(place.parent):
                    # Only here does anybody change what is under the final names.
                    check()
                    if before := self.look(name):
                        return Published(before, ours=False)
                    _manifest(place).unlink(missing_ok=True)
                    part.replace(place)
                    with part_beside(place) as manifest:
                        _filled(manifest, BytesIO(written(whole)), check)
                        manifest.replace(_manifest(place))
                    sync(place.parent)
        return Published(whole, ours=True)


@contextmanager
def _unnamed(name: str) -> Iterator[None]:
    """The same errors, for the handler's classification, without the place of the store: that is for nobody's log."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"artifact {name!r} could not be stored: {error.strerror}") from None


def _filled(part: Path, source: BinaryIO, check: Check) -> Whole:
    """All of the source, on the disk."""
    with part.open("xb") as sink:
        whole = digest(source, check, sink.write)
        sink.flush()
        os.fsync(sink.fileno())
    return whole


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other process, and no other thread, is in this block for the same folder."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _manifest(place: Path) -> Path:
    return place.with_name(place.name + SUFFIX)
