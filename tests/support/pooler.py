"""A pooler, as far as a client can tell: it may be given another session with each transaction."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.proxy import CHUNK, Proxy, _Connection

# BackendKeyData: the process that a client may ask to cancel, and the secret that it says for it.
_KEY = re.compile(rb"K\x00\x00\x00\x0c....(....)", re.DOTALL)
_NOBODY = b"K\x00\x00\x00\x0c\x00\x00\x00\x07"


class Pooler(Proxy):
    """Gives its clients a process to cancel that is none of the server's, as poolers do."""

    def _to_client(self, connection: _Connection) -> None:
        while data := connection.server.recv(CHUNK):
            connection.client.sendall(_KEY.sub(_NOBODY + rb"\1", data))


@contextmanager
def pooled_url(url: str) -> Iterator[str]:
    """The database of that URL, through a pooler."""
    parts = conninfo_to_dict(url)
    pooler = Pooler(str(parts["host"]), int(str(parts["port"])))
    try:
        yield make_conninfo(url, host="127.0.0.1", port=pooler.port)
    finally:
        pooler.refuse()
