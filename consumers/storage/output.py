"""A file that a handler has made, as it is read to be stored."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from consumers.errors import TransientError, UsageError
from consumers.storage.manifest import Whole
from consumers.storage.target import Check

_CHUNK = 1 << 20
EMPTY = "EMPTY_OUTPUT"


def seal(unfinished: Path, finished: Path, name: str) -> None:
    """Have the file on the disk, under a name that only whole files have.

    Raises TransientError where there is nothing in it, UsageError where it is no file.
    """
    try:
        mode = unfinished.lstat().st_mode
    except FileNotFoundError:
        raise TransientError(f"artifact {name!r}: the handler has written nothing to artifact.path", EMPTY) from None
    if not stat.S_ISREG(mode):
        raise UsageError(f"artifact {name!r}: artifact.path is no file but a folder or a link; write one file there")
    with unfinished.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise TransientError(f"artifact {name!r}: the handler has written an empty file to artifact.path", EMPTY)
        os.fsync(file.fileno())
    unfinished.replace(finished)


@contextmanager
def reading(file: Path) -> Iterator[BinaryIO]:
    """The file itself, and nothing that a link leads to."""
    with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:  # noqa: PTH123 -- by its descriptor
        yield opened


def digest(source: BinaryIO, check: Check, sink: Callable[[bytes], object] | None = None) -> Whole:
    """Read it to its end, hand over what was read, and say what it was."""
    sha256, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        check()
        sha256.update(chunk)
        size += len(chunk)
        if sink is not None:
            sink(chunk)
    return Whole(size, sha256.hexdigest())
