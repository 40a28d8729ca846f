"""Where the files of archives are: what is asked of any such place."""

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, Protocol

from relay.errors import ArchiveError, ConfigurationError
from relay.kernel.failure import told

CHUNK = 1 << 20
# Raises where the work is to go no further.
Check = Callable[[], None]


class MissingFileError(ArchiveError):
    """There is no such file."""


class UnusablePlaceError(ConfigurationError):
    """The place itself is wrong, whatever the table: it is told once, and nothing else is tried."""


class PlaceAwayError(ArchiveError):
    """The place takes nothing for now, whatever the table: the same."""


class Draft(Protocol):
    """A file that is being written, and is under no name."""

    file: BinaryIO

    def keep(self, name: str, check: Check) -> None:
        """Have it under its name, as a whole or not at all."""
        ...


class Store(Protocol):
    """A place. Everything blocks; what fails is an ArchiveError that names the place."""

    @property
    def shown(self) -> str:
        """What it is called, without a secret."""
        ...

    def require(self) -> None:
        """Raise UnusablePlaceError where it can be seen without a file that there is no such place."""
        ...

    def require_writable(self, folder: str) -> None:
        """Try whether a file could be written, and leave none. Raises ConfigurationError, or ArchiveError for now."""
        ...

    def draft(self, folder: str) -> AbstractContextManager[Draft]:
        """A file to write, which is gone at the end of the block unless it was kept."""
        ...

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file that was kept, from its beginning. Raises MissingFileError."""
        ...


@contextmanager
def in_words(what: str, place: str) -> Iterator[None]:
    """Say which file of which place it was, and what is to be done."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingFileError(f"{what} is missing at {place}") from error
    except PermissionError as error:
        raise ArchiveError(
            f"{place} refuses {what}: {told(error)}; docs/archive.md lists the rights that are needed there"
        ) from error
    except OSError as error:
        raise ArchiveError(f"{what} at {place}: {error.strerror or told(error)}; {_remedy(error)}") from error


def _remedy(error: OSError) -> str:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return "make space there, and call again" if full else "call again when the place answers"
