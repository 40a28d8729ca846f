"""Directories for what handlers write on their way: one for each attempt, gone when it has ended.

    <SCRATCH_DIR>/<pid>-<random>/              one for each consumer at work, with a lock that ends with its process
    <SCRATCH_DIR>/<pid>-<random>/<event id>-…  one for each attempt

No error names a path outside of the attempt's own directory.
"""

import errno
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from consumers.errors import TransientError, UsageError
from consumers.relative_name import parts_of

_OWNER = ".owner"
_OURS = re.compile(r"\d+-[a-z0-9_]{8}")
# What a process that died has left may be looked at for so long.
_LEFT_FOR = 24 * 3_600.0


def default_root() -> Path:
    """Where they are, where nobody says otherwise."""
    return Path(tempfile.gettempdir()) / "outbox-scratch"


class Scratch:
    """The directory of one attempt."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        """It is there, and empty at first. Whatever is in it is gone when the attempt has ended."""
        return self._directory

    def path(self, name: str | PurePath) -> Path:
        """Where a file of this name is to be; the folders above it are made.

        Raises UsageError for a name that leads out of the directory: by `..`, from the root, or by a symbolic link.
        """
        asked = "ctx.scratch.path"
        place = self._directory.joinpath(*parts_of(name, asked))
        # Not `resolve`, which raises for links that lead to each other: these lead nowhere, and so not out.
        if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(self._directory)):
            raise UsageError(
                f"{asked}: the name leads out of the scratch directory by a symbolic link; remove that, or name "
                "another file"
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def remove(self) -> None:
        """Remove it with all that is in it, also what nobody may write to. Raises OSError where that cannot be."""
        for _ in range(2):
            try:
                shutil.rmtree(self._directory)
            except FileNotFoundError:
                # Gone, or something in it went just now: a program that the handler started may still be at it.
                if not self._directory.exists():
                    return
            except OSError:
                _open_up(self._directory)
            else:
                return
        with _unnamed("the scratch directory could not be removed"):
            shutil.rmtree(self._directory)


class Scratches:
    """The directories of one consumer in this process. Safe to use from any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._home: Path | None = None
        self._owner: int | None = None

    def open(self, label: str) -> Scratch:
        """A new directory, in whose name the label is. Raises TransientError where none can be had."""
        try:
            with self._lock:
                try:
                    return self._made(label)
                except FileNotFoundError:
                    # Whoever tidies temporary files may have taken ours.
                    self._let_go()
                    return self._made(label)
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, "NO_SCRATCH")
            raise TransientError(
                f"there is no scratch directory to be had: {error.strerror}; see SCRATCH_DIR, and who may write there",
                reason,
            ) from None

    def close(self) -> None:
        """Leave nothing behind, but what attempts have that still run."""
        with self._lock:
            home = self._home
            if home is None or not home.exists():
                self._let_go()
            elif [entry.name for entry in home.iterdir()] == [_OWNER]:
                with suppress(OSError):  # an empty directory, which a sweep finds
                    (home / _OWNER).unlink()
                    home.rmdir()
                self._let_go()

    def sweep(self) -> None:
        """Remove what processes have left that died more than a day ago. Raises OSError where that cannot be."""
        fault: OSError | None = None
        for home in self._left():
            try:
                with _unowned(home) as dead:
                    if dead:
                        Scratch(home).remove()
            except OSError as error:
                fault = error
        if fault is not None:
            raise fault

    def _made(self, label: str) -> Scratch:
        if self._home is None:
            self._home = self._moved_in()
        return Scratch(Path(tempfile.mkdtemp(prefix=f"{label}-", dir=self._home)))

    def _moved_in(self) -> Path:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._root.stat().st_uid not in (os.geteuid(), 0):
            # Whoever owns it may put a link in the place of any directory in it.
            raise PermissionError(errno.EACCES, "it belongs to another user")
        home = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self._root))
        self._owner = os.open(home / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return home

    def _let_go(self) -> None:
        if self._owner is not None:
            os.close(self._owner)
        self._home = self._owner = None

    def _left(self) -> Iterator[Path]:
        try:
            entries = list(os.scandir(self._root))
        except FileNotFoundError:
            return
        before = time.time() - _LEFT_FOR
        for entry in entries:
            if _OURS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):  # another process sweeps as well
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        yield Path(entry.path)


@contextmanager
def _unowned(home: Path) -> Iterator[bool]:
    """Whether the process is dead that this is of: whether its lock can be had, which is held meanwhile.

    A number of a process says less: it may be another one's by now, or one in another container.
    """
    try:
        owner = os.open(home / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True  # it died before it had a lock, or is removed already
        return
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(owner)


@contextmanager
def _unnamed(what: str) -> Iterator[None]:
    """The same errors, without the paths that they are about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{what}: {error.strerror}") from None


def _open_up(directory: Path) -> None:
    """Allow ourselves to remove what is in there."""
    with suppress(OSError):  # what cannot be opened up cannot be removed, which is told
        directory.chmod(0o700)
        for folder, names, _ in os.walk(directory):
            for name in names:
                inner = Path(folder, name)
                if not inner.is_symlink():
                    inner.chmod(0o700)
