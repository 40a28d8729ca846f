"""The server as clients meet it, honest and otherwise; on a socket, without a relay behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from relay.errors import ConfigurationError
from relay.kernel.observe import PassFinished, ShutdownBegan
from relay.kernel.runner import Report
from relay.operate.health import Health
from relay.operate.http import HttpListening, serving
from relay.operate.http.pages import Pages
from relay.operate.http.server import Limits
from relay.operate.metrics import Metrics

READY = PassFinished("publish", Report(), 0.1)
PATIENT = Limits(connections=4, seconds=60)
TOKEN = "s3cret"  # noqa: S105 -- a test's own


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Site:
    """A running server, and what it tells of."""

    port: int
    health: Health
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has said nothing yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def hang_up(self) -> None:
        """End every connection that a test began."""
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def say(self, words: bytes) -> bytes:
        """Send bytes, and read all that comes until the server closes."""
        reader, writer = await self.open()
        writer.write(words)
        await writer.drain()
        return await reader.read()

    async def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """One well-formed request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: relay", *(f"{name}: {value}" for name, value in headers.items())]
        return answer_of(await self.say(("\r\n".join(lines) + "\r\n\r\n").encode()))


def answer_of(said: bytes) -> Answer:
    """Take a response apart."""
    head, _, body = said.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Answer(int(status.split()[1]), headers, body)


@asynccontextmanager
async def site(token: str | None = None, limits: Limits = PATIENT, host: str = "127.0.0.1") -> AsyncIterator[Site]:
    """Serve on a free port."""
    health = Health(lambda: 0.0, 90, 80)
    pages = Pages(health, Metrics("1.2.3", 1, lambda: 0.0, health), token)
    async with serving(host, 0, pages, lambda _: None, limits) as listening:
        here = Site(listening.port, health)
        yield here
    await here.hang_up()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ended the connection without a word; waits until it does."""
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


async def test_the_probes_follow_the_pipeline() -> None:
    """The process is the same one; what it says changes with what happens."""
    async with site() as here:
        assert (await here.ask("/readyz")).status == 503
        assert (await here.ask("/healthz")).status == 200

        here.health(READY)
        answer = await here.ask("/readyz")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.body)["checks"]["pipeline"] == {"status": "ok"}

        here.health(ShutdownBegan("SIGTERM", 25))
        answer = await here.ask("/readyz")
        assert answer.status == 503
        assert json.loads(answer.body)["checks"]["shutting_down"]["detail"] == "stopping: SIGTERM"


async def test_metrics_are_prometheus_text() -> None:
    """With a query or without."""
    async with site() as here:
        answer = await here.ask("/metrics?name=x")

    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert b"relay_build_info{" in answer.body


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
async def test_head_is_get_without_the_body(path: str) -> None:
    """The length is told all the same."""
    async with site() as here:
        got, head = await here.ask(path), await here.ask(path, "HEAD")

    assert head.status == got.status
    assert head.body == b""
    assert int(head.headers["content-length"]) > 0


async def test_what_is_not_there_is_404_and_what_is_not_done_405() -> None:
    """Neither has a side effect."""
    async with site() as here:
        assert (await here.ask("/")).status == 404
        assert (await here.ask("/metrics/../healthz")).status == 404
        answer = await here.ask("/healthz", "POST", **{"Content-Length": "0"})

    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


async def test_without_the_token_probes_say_yes_or_no_and_nothing_else() -> None:
    """A platform's probe carries no secret; why a relay is not ready is not for everyone."""
    async with site(TOKEN) as here:
        not_ready = await here.ask("/readyz")
        here.health(READY)
        ready, healthy, metrics = await here.ask("/readyz"), await here.ask("/healthz"), await here.ask("/metrics")

    assert (not_ready.status, json.loads(not_ready.body)) == (503, {"status": "fail"})
    assert (ready.status, json.loads(ready.body)) == (200, {"status": "ok"})
    assert (healthy.status, json.loads(healthy.body)) == (200, {"status": "ok"})
    assert metrics.status == 401
    assert metrics.headers["www-authenticate"].startswith("Bearer")


async def test_with_the_token_everything_is_shown() -> None:
    """The scheme in any case, as HTTP has it."""
    async with site(TOKEN) as here:
        metrics = await here.ask("/metrics", Authorization=f"bearer {TOKEN}")
        ready = await here.ask("/readyz", Authorization=f"Bearer {TOKEN}")

    assert metrics.status == 200
    assert "checks" in json.loads(ready.body)


@pytest.mark.parametrize(
    "shown", ["Bearer wrong", "Bearer", f"Basic {TOKEN}", TOKEN, "Bearer s3cret2", "Bearer \u00e9"]
)
@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/healthz", "/nothing"])
async def test_a_wrong_token_is_refused_everywhere(shown: str, path: str) -> None:
    """Whoever shows one means to have it: a mistake is told."""
    async with site(TOKEN) as here:
        assert (await here.ask(path, Authorization=shown)).status == 401
        assert (await here.ask(f"{path}?token={TOKEN}", Authorization=shown)).status == 401


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 30_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    ],
)
async def test_garbage_gets_an_answer_and_no_traceback(words: bytes, status: int) -> None:
    """The client gets to read it, though it was still sending; the next one is served."""
    async with site() as here:
        assert answer_of(await here.say(words)).status == status
        assert (await here.ask("/healthz")).status == 200


async def test_a_client_that_hangs_up_half_way_takes_nothing_down() -> None:
    """Before its request, within it, and before the answer."""
    async with site() as here:
        for words in (b"", b"GET /healthz HT", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"):
            _, writer = await here.open()
            writer.write(words)
            writer.transport.abort()
        assert (await here.ask("/healthz")).status == 200


async def test_a_request_with_a_body_is_answered_though_nobody_reads_it() -> None:
    """A body that never ends does not keep the connection."""
    async with site(limits=Limits(seconds=60, linger_bytes=100_000)) as here:
        said = await here.say(b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 150_000)

    assert answer_of(said).status == 405


async def test_old_clients_are_served_too() -> None:
    """HTTP/1.0 without a Host, as some load balancers probe."""
    async with site() as here:
        assert answer_of(await here.say(b"GET /healthz HTTP/1.0\r\n\r\n")).status == 200


async def test_who_opens_connections_and_says_nothing_keeps_nobody_out() -> None:
    """The oldest silent one gives way to the newest; there are never more than the limit."""
    async with site() as here:
        silent = [await here.open() for _ in range(20)]
        assert (await here.ask("/healthz")).status == 200

        reader, _ = silent[0]
        assert await ended(reader)


async def test_a_client_that_is_too_slow_is_cut_off() -> None:
    """A byte now and then does not prolong it: the time is that of the whole request."""
    async with site(limits=Limits(seconds=0.2)) as here:
        reader, writer = await here.open()
        dripping = asyncio.create_task(drip(writer))
        assert await ended(reader)
        with pytest.raises(ConnectionError):
            await dripping


async def drip(writer: asyncio.StreamWriter) -> None:
    """A request that never ends, a byte at a time, until nobody takes it."""
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_a_client_that_keeps_its_connection_is_let_go() -> None:
    """It has its answer, and whatever it says afterwards meets nobody."""
    async with site(limits=Limits(seconds=0.2)) as here:
        reader, writer = await here.open()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer_of(await reader.read()).status == 200

        with pytest.raises(ConnectionError):
            await drip(writer)


async def test_the_end_drops_who_is_still_there() -> None:
    """Nothing holds up the end of the process."""
    async with site() as here:
        reader, writer = await here.open()
        writer.write(b"GET /hea")
        assert (await here.ask("/healthz")).status == 200
    assert await ended(reader)
    with pytest.raises(ConnectionRefusedError):
        await here.open()


async def test_a_port_in_use_is_a_wrong_configuration() -> None:
    """Known before anything is published, with the remedy."""
    async with site() as here:
        pages = Pages(here.health, Metrics("1", 1, lambda: 0.0), None)
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{here.port} .*Address already in use.*RELAY_HTTP"):
            async with serving("127.0.0.1", here.port, pages, lambda _: None):
                pass


@pytest.mark.parametrize("address", [("host.invalid", 0), ("127.0.0.1", 70_000), ("192.0.2.1", 0), ("a..b", 0)])
async def test_an_address_that_is_none_of_ours_is_a_wrong_configuration(address: tuple[str, int]) -> None:
    """Whichever way the system says so."""
    health = Health(lambda: 0.0, 90, 80)
    pages = Pages(health, Metrics("1", 1, lambda: 0.0), TOKEN)
    with pytest.raises(ConfigurationError, match="nothing can listen on"):
        async with serving(*address, pages, lambda _: None):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", ""])  # noqa: S104 -- to be refused
async def test_nothing_leaves_the_machine_without_a_token(host: str) -> None:
    """Refused at the start; with a token it may."""
    with pytest.raises(ConfigurationError, match="RELAY_HTTP_TOKEN"):
        async with site(host=host):
            pass
    async with site(TOKEN, host="0.0.0.0") as here:  # noqa: S104 -- with a token it may
        assert (await here.ask("/healthz")).status == 200


async def test_where_it_listens_is_told() -> None:
    """With the port that the system chose."""
    told: list[object] = []
    health = Health(lambda: 0.0, 90, 80)
    pages = Pages(health, Metrics("1", 1, lambda: 0.0), None)
    async with serving("127.0.0.1", 0, pages, told.append) as listening:
        assert told == [listening]
        assert isinstance(listening, HttpListening)
        assert listening.port > 0
