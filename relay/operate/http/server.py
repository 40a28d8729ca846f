"""A small HTTP/1.1 server in the event loop of the relay: one request a connection, everything bounded.

A client gets a few seconds to ask and a few to take its answer. When there are too many at once, the one that has kept
the server waiting longest is dropped for the newest, so whoever opens connections and says nothing cannot keep a probe
out.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

import h11

from relay.errors import ConfigurationError
from relay.kernel.observe import Observe
from relay.operate.http.address import outside, unguarded
from relay.operate.http.pages import Pages, Request, Response, failure


@dataclass(frozen=True, slots=True)
class HttpListening:
    """Health and metrics are served here."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may take."""

    connections: int = 64
    head_bytes: int = 8_192
    seconds: float = 5.0  # to ask; and as long again to take the answer
    linger_bytes: int = 65_536  # that are read and thrown away, so that an early answer is not lost


DEFAULT_LIMITS = Limits()


@asynccontextmanager
async def serving(
    host: str, port: int, pages: Pages, observe: Observe, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[HttpListening]:
    """Serve for the time of the block. Raises ConfigurationError where nothing can listen, or should not."""
    server = _Server(pages, limits)
    listening = await server.listen(host, port)
    try:
        observe(listening)
        yield listening
    finally:
        await server.close()


class _Server:
    def __init__(self, pages: Pages, limits: Limits) -> None:
        self._pages = pages
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # the oldest first
        self._closed = False

    async def listen(self, host: str, port: int) -> HttpListening:
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=self._limits.head_bytes, start_serving=False
            )
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigurationError(
                f"nothing can listen on {host}:{port} for health and metrics: {_why(error)}; "
                "is another relay there already? Set RELAY_HTTP to another port, or to nothing"
            ) from error
        # Asked of the sockets: a name may stand for any address.
        bound = [listener.getsockname()[:2] for listener in self._server.sockets]
        reached = outside(address for address, _ in bound)
        if reached and not self._pages.guarded:
            self._server.close()
            raise unguarded(reached)
        await self._server.start_serving()
        return HttpListening(*bound[0])

    async def close(self) -> None:
        """Stop listening, and end what is under way."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        clients = dict(self._clients)
        for task, writer in clients.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- a coroutine runs in one
        if self._closed:
            writer.transport.abort()
            return
        self._make_room()
        self._clients[task] = writer
        try:
            # Whatever a client does ends its own connection and nothing else.
            with suppress(OSError, TimeoutError, asyncio.CancelledError, h11.ProtocolError):
                await self._converse(reader, writer)
        finally:
            self._clients.pop(task, None)
            # What the client took is written by now; the rest it would never take.
            writer.transport.abort()

    def _make_room(self) -> None:
        while len(self._clients) >= self._limits.connections:
            task, writer = next(iter(self._clients.items()))
            writer.transport.abort()
            task.cancel()
            # Not left to the task: it may not have run yet when the next client comes.
            del self._clients[task]

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
        async with asyncio.timeout(self._limits.seconds):
            response = await self._respond(connection, reader)
        if response is None:
            return
        async with asyncio.timeout(self._limits.seconds):
            writer.write(_spoken(connection, response))
            await writer.drain()
            writer.write_eof()
            await self._linger(reader)
            writer.close()
            await writer.wait_closed()

    async def _respond(self, connection: h11.Connection, reader: asyncio.StreamReader) -> Response | None:
        """The answer to what is asked; None where the client left without a question."""
        try:
            asked = await self._asked(connection, reader)
        except h11.RemoteProtocolError as error:
            # Not in h11's words, which may repeat the client's.
            return failure(HTTPStatus(error.error_status_hint), "this is not HTTP, or too much of it")
        if asked is None:
            return None
        # The last of several: all but the honest client sends one.
        shown = [value for name, value in asked.headers if name == b"authorization"]
        return self._pages.answer(
            Request(
                method=asked.method.decode("ascii"),
                target=asked.target.decode("ascii", "replace"),
                authorization=shown[-1] if shown else None,
            )
        )

    @staticmethod
    async def _asked(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
        while True:
            match connection.next_event():
                case h11.Request() as request:
                    return request
                case h11.NEED_DATA:
                    connection.receive_data(await reader.read(4_096))
                case _:
                    return None

    async def _linger(self, reader: asyncio.StreamReader) -> None:
        """Let the client take its answer: a connection that is closed over unread bytes is reset, answer and all."""
        left = self._limits.linger_bytes
        while left > 0 and (taken := await reader.read(4_096)):
            left -= len(taken)


def _spoken(connection: h11.Connection, response: Response) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        "Date": formatdate(usegmt=True),
        **response.headers,
    }
    head = connection.send(
        h11.Response(status_code=response.status, headers=list(headers.items()), reason=response.status.phrase.encode())
    )
    body = None if response.head_only else connection.send(h11.Data(data=response.body))
    return (head or b"") + (body or b"")


def _why(error: Exception) -> str:
    """The system's own words; asyncio puts the address into a tuple around them."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error)
