"""Files that are there to their last byte or not at all: written beside their place, and then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

SUFFIX = ".part"


@contextmanager
def part_beside(place: Path) -> Iterator[Path]:
    """A name on the file system of the place; what is there is gone afterwards, unless it was renamed."""
    part = place.with_name(f".{uuid4().hex}{SUFFIX}")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Have the names of a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
