"""A network between a client and a server that fails when it is told to, and at a COMMIT to the byte."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK: Final = 65_536
RESET: Final = struct.pack("ii", 1, 0)
# As the relay writes the statement in its batches, in either protocol of Postgres (drivers commit in capitals), and as
# the server confirms it.
COMMIT_ASKED: Final = b"commit\x00"
COMMIT_DONE: Final = b"COMMIT\x00"


class AtCommit(Enum):
    """What becomes of one COMMIT."""

    CUT_BEFORE = auto()  # it never reaches the server
    CUT_AFTER = auto()  # the server has committed, the answer never comes back
    SILENT_BEFORE = auto()  # as CUT_BEFORE, and the connection stays open
    SILENT_AFTER = auto()  # as CUT_AFTER, and the connection stays open


class _Connection:
    """One client's connection and ours to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.committing: AtCommit | None = None
        self.silent = threading.Event()

    def cut(self) -> None:
        """Reset both sides."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """Listens on a port of 127.0.0.1 that it keeps, and carries bytes to and from `target`, which may be replaced."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.happened = threading.Event()
        """Set when a COMMIT was dealt with as `at_commit` asked."""
        self.accepted = 0
        self.rejected = 0
        """How many connections were reset on arrival since the last `reject`."""
        self._rejecting = False
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._at_commit: AtCommit | None = None
        self._commits_before = 0
        self._silent = False
        self._listener: socket.socket | None = None
        self.port = 0
        self.reopen()

    @property
    def address(self) -> str:
        """The `host:port` to connect to."""
        return f"127.0.0.1:{self.port}"

    def at_commit(self, what: AtCommit, *, skip: int = 0) -> None:
        """Do this at the next COMMIT, or after so many others."""
        with self._lock:
            self._at_commit, self._commits_before = what, skip
        self.happened.clear()

    def cut(self) -> None:
        """Reset every connection; new ones are welcome."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.cut()

    def refuse(self) -> None:
        """Reset every connection and refuse new ones, until `reopen`."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def reopen(self) -> None:
        """Take connections, as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def freeze(self) -> None:
        """Carry nothing any more on any connection, those to come included, and close none: half-open."""
        self._silent = True
        with self._lock:
            for connection in self._connections:
                connection.silent.set()

    def reject(self) -> None:
        """Reset every connection, those to come as soon as they come, and count these."""
        self._rejecting, self.rejected = True, 0
        self.cut()

    def thaw(self) -> None:
        """Serve new connections again, after `freeze` or `reject`; what was frozen is cut."""
        self._silent = self._rejecting = False
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._rejecting:
                self.rejected += 1
                _Connection(client, client).cut()
                continue
            try:
                server = socket.create_connection(self.target)
            except OSError:
                _Connection(client, client).cut()
                continue
            connection = _Connection(client, server)
            with self._lock:
                if self._silent:
                    connection.silent.set()
                self._connections.add(connection)
                self.accepted += 1
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for carry in (self._to_server, self._to_client):
                threading.Thread(target=self._carry, args=(carry, connection), daemon=True).start()

    @staticmethod
    def _carry(carry: Callable[[_Connection], None], connection: _Connection) -> None:
        with suppress(OSError):
            carry(connection)
        if not connection.silent.is_set():
            connection.cut()

    def _to_server(self, connection: _Connection) -> None:
        tail = b""
        while data := connection.client.recv(CHUNK):
            if connection.silent.is_set():
                continue
            if COMMIT_ASKED in tail + data:
                connection.committing = self._take_commit()
                if connection.committing in {AtCommit.CUT_BEFORE, AtCommit.SILENT_BEFORE}:
                    self._end(connection, connection.committing is AtCommit.SILENT_BEFORE)
                    continue
            tail = data[-len(COMMIT_ASKED) :]
            connection.server.sendall(data)

    def _to_client(self, connection: _Connection) -> None:
        held = b""
        while data := connection.server.recv(CHUNK):
            if connection.silent.is_set():
                continue
            if connection.committing in {AtCommit.CUT_AFTER, AtCommit.SILENT_AFTER}:
                held += data
                if COMMIT_DONE in held:
                    self._end(connection, connection.committing is AtCommit.SILENT_AFTER)
                continue
            connection.client.sendall(data)

    def _take_commit(self) -> AtCommit | None:
        with self._lock:
            if self._at_commit is not None and self._commits_before:
                self._commits_before -= 1
                return None
            found, self._at_commit = self._at_commit, None
            return found

    def _end(self, connection: _Connection, silent: bool) -> None:  # noqa: FBT001 -- of AtCommit
        if silent:
            connection.silent.set()
        else:
            connection.cut()
        self.happened.set()


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """A proxy for the length of the block."""
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.refuse()


@contextmanager
def postgres_proxy(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy to the server of a database, and the URL of the database through it."""
    parts = conninfo_to_dict(url)
    with proxy_to(str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432)) as proxy:
        yield proxy, through(proxy, url)


def through(proxy: Proxy, url: str) -> str:
    """The URL of a database as a client of the proxy writes it: in the clear, so that a COMMIT can be seen."""
    return make_conninfo(url, host="127.0.0.1", port=proxy.port, sslmode="disable", gssencmode="disable")
