"""Temporary folders in memory: a disk's file system may make the files of many databases dear.

ext4 gives nobody the number of a file that was deleted within the last minutes, and looks at each of them whenever a
file is made. A database is 300 files: the hundredth of a run takes 0.2 s to make there, and 0.02 s here.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

_FOLDER = Path("/dev/shm")  # noqa: S108 -- the parent of private folders
# For each process of a run: some databases, and as much WAL as Postgres keeps. What a container has there by itself is
# too little.
_BYTES = 2**30


@contextmanager
def in_memory() -> Iterator[None]:
    """Have the temporary folders that are made within the block in memory, on a machine that has it to spare."""
    with patch.object(tempfile, "tempdir", str(_FOLDER) if _fits() else tempfile.gettempdir()):
        yield


def _fits() -> bool:
    try:
        there = os.statvfs(_FOLDER)
    except FileNotFoundError:
        return False
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    runs_programs = not there.f_flag & os.ST_NOEXEC
    return (
        runs_programs
        and there.f_bavail * there.f_frsize >= _BYTES * processes
        and os.access(_FOLDER, os.W_OK | os.X_OK)
    )
