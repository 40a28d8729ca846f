"""One process at a time has a table's archive in hand, over all that share the database."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from relay.errors import ArchiveError
from relay.upkeep.archive.session import Connect, Session, ask, do

_PING_SECONDS = 5.0


class ArchiveBusyError(ArchiveError):
    """Somebody else has it in hand."""


@contextmanager
def alone(connect: Connect, schema: str, origin: str) -> Iterator[Callable[[Session], None]]:
    """Hold the lock for the block, and give it what asks whether it is held still. Raises ArchiveBusyError.

    Whoever asks has the session that does the work be heard of, too. The transaction that holds the lock writes nothing
    and is idle, on a connection of its own: it is in nobody's way.
    """
    with Session.open(connect, schema) as session, session.transaction() as connection:
        do(connection, "hold", {})
        (row,) = ask(connection, "try_lock", {"origin": origin})
        if not all(row.values()):
            raise ArchiveBusyError(
                f"another process has the archive of {origin} in hand; it ends by itself, call again then. "
                "Nothing was changed"
            )
        yield _Ping(connection, origin)


class _Ping:
    """Asks now and then, however often it is called."""

    def __init__(self, connection: "psycopg.Connection[object]", origin: str) -> None:
        self._connection = connection
        self._origin = origin
        self._due = time.monotonic() + _PING_SECONDS

    def __call__(self, session: Session) -> None:
        if time.monotonic() < self._due:
            return
        try:
            self._connection.execute("select")
        except psycopg.Error as error:
            raise ArchiveError(
                f"the connection that held the lock of the archive of {self._origin} is lost; what is recorded is "
                "done, call again for the rest"
            ) from error
        session.keep()
        self._due = time.monotonic() + _PING_SECONDS
