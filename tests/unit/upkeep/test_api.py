"""Calls of the internal API, against a server that answers as a test wants it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg
import pytest
from pydantic import SecretStr

from relay.errors import ApiError, ConfigurationError
from relay.kernel.failure import code, sentence
from relay.upkeep import Jobs, Run
from relay.upkeep.api import ServiceApi
from relay.upkeep.events import Status
from relay.upkeep.execution import Execution
from relay.upkeep.http import HttpCall
from relay.upkeep.loading import api_of
from relay.upkeep.run import Api, Surroundings
from relay.upkeep_settings import UpkeepSettings
from tests.support.streams import answered

TOKEN = "s3rvice-t0ken"  # noqa: S105 -- a test's own
SECRET = "what the body says"  # noqa: S105 -- the same
DIGEST = HttpCall("POST", "/internal/digest?for=anna")


@dataclass
class Server:
    """Says the same to everybody, and keeps what it was asked."""

    says: bytes
    asked: list[bytes] = field(default_factory=list)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if not self.says:
                await asyncio.Event().wait()
            writer.write(self.says)
            await writer.drain()


@asynccontextmanager
async def serving(says: bytes) -> AsyncIterator[Server]:
    """Serve on a free port."""
    server = Server(says)
    async with answered(server.answer) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


def answer(status: str, *headers: str) -> bytes:
    """An answer with a body that is nobody's business."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(SECRET)}", "connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + SECRET).encode()


def run_of(api: Api | None) -> Run:
    """A run whose job calls the API."""

    async def connect() -> "psycopg.AsyncConnection[tuple[object, ...]]":
        raise AssertionError("nobody asks the database")

    around = Surroundings(connect=connect, schema="public", observe=lambda _: None, api=api)
    return Run(job="digest", slot=datetime.now(UTC), worker="w", around=around, stopping=asyncio.Event())


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted", "204 No Content"])
async def test_a_job_is_done_when_the_api_says_so(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the token, who asks, and the path behind the base; no proxy of the environment is asked."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    says = answer(status) if not status.startswith("204") else b"HTTP/1.1 204 No Content\r\n\r\n"
    jobs = Jobs()
    jobs.http("/internal/digest?for=anna", name="digest", every="1m")
    async with serving(says) as server:
        run = run_of(ServiceApi(f"{server.url}/v2", TOKEN))
        (job,) = jobs
        await job.work(run)

    head = server.asked[0].decode().lower().split("\r\n")
    assert head[0] == "post /v2/internal/digest?for=anna http/1.1"
    assert f"x-service-token: {TOKEN}" in head
    assert any(line.startswith("user-agent: outbox-relay/") for line in head)
    assert run.counters == {"http_requests": 1}


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        ("503 Service Unavailable", (), "HTTP_503: POST /internal/digest was answered with status 503"),
        ("404 Not Found", (), "HTTP_404: POST /internal/digest was answered with status 404"),
        (
            "302 Found",
            ("location: {elsewhere}/login",),
            "HTTP_302: POST /internal/digest was answered with status 302, which is not followed: the token would",
        ),
    ],
)
async def test_any_other_answer_fails_the_job(status: str, headers: tuple[str, ...], words: str) -> None:
    """By its status, and by nothing that the server said or was asked; nobody else is told the token."""
    async with serving(answer("200 OK")) as elsewhere:
        sent = [header.format(elsewhere=elsewhere.url) for header in headers]
        async with serving(answer(status, *sent)) as server:
            with pytest.raises(ApiError) as refusal:
                await ServiceApi(server.url, TOKEN)(DIGEST, 30)

    assert elsewhere.asked == []
    assert sentence(refusal.value).startswith(f"ApiError: {words}")
    assert code(refusal.value) == f"HTTP_{status[:3]}"


@pytest.mark.parametrize(
    ("says", "reason", "seconds"),
    [
        (b"", "HTTP_TIMEOUT", 0.2),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", "HTTP_BROKEN", 30),
        (b"nothing of HTTP: " + SECRET.encode() + b"\r\n\r\n", "HTTP_BROKEN", 30),
    ],
)
async def test_a_server_that_does_not_answer_as_it_should_fails_the_job(
    says: bytes, reason: str, seconds: float
) -> None:
    """An answer counts when it is whole."""
    async with serving(says) as server:
        with pytest.raises(ApiError) as refusal:
            await ServiceApi(server.url, TOKEN)(DIGEST, seconds)

    assert code(refusal.value) == reason
    assert SECRET not in str(refusal.value)
    assert "anna" not in str(refusal.value)


async def test_an_answer_that_does_not_end_has_no_more_time_than_any() -> None:
    """However steadily it comes."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)

    async with answered(drip) as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(ApiError) as refusal:
            await ServiceApi(url, TOKEN)(DIGEST, 0.2)

    assert code(refusal.value) == "HTTP_TIMEOUT"


async def test_a_server_that_is_not_there_fails_the_job() -> None:
    """It is said what the system says."""
    async with serving(b"") as server:
        pass
    with pytest.raises(ApiError) as refusal:
        await ServiceApi(server.url, TOKEN)(DIGEST, 30)

    server_said = f"no connection to {server.url.removeprefix('http://')}, which WORKER_API_BASE_URL names: "
    assert sentence(refusal.value).startswith(f"ApiError: HTTP_UNREACHABLE: POST /internal/digest: {server_said}")


@pytest.mark.parametrize("path", ["digest", "//elsewhere/x", "@elsewhere/x", "/x y", "/x#y", 7])
async def test_a_call_cannot_lead_away_from_the_api(path: str) -> None:
    """What is no path of it is refused before anybody is asked."""
    with pytest.raises(ConfigurationError, match=r"run.call_api: path is "):
        await run_of(ServiceApi("http://127.0.0.1:1", TOKEN)).call_api("POST", path)


async def test_a_call_without_an_api_says_what_is_missing() -> None:
    """To whoever calls it from a function."""
    with pytest.raises(ConfigurationError, match="calls of the API need WORKER_API_BASE_URL, "):
        await run_of(None).call_api("POST", "/x")


async def test_a_job_whose_call_is_not_answered_in_time_says_so() -> None:
    """The call's time is over before the job's: a run that was only cancelled would not say by what."""
    jobs = Jobs()
    jobs.http("/x", name="digest", every="1m", timeout="1s")
    (job,) = jobs

    async def held() -> BaseException:
        await asyncio.Event().wait()
        raise AssertionError("nobody loses this lock")

    async with serving(b"") as server:
        run = run_of(ServiceApi(server.url, TOKEN))
        ending = await Execution(lambda: job.work(run), held(), lambda _: None).run(job.timeout)

    assert ending.status is Status.FAILED
    assert ending.error is not None
    assert code(ending.error) == "HTTP_TIMEOUT"


def settings(base: str = "https://api.internal", token: str = TOKEN) -> UpkeepSettings:
    """Where the API is, and what it is shown."""
    return UpkeepSettings(worker_api_base_url=base, worker_api_service_token=SecretStr(token))


def http_jobs() -> Jobs:
    """One that calls the API."""
    jobs = Jobs()
    jobs.http("/x", name="digest", every="1m")
    return jobs


@pytest.mark.parametrize(
    ("base", "token", "lines"),
    [
        (
            "",
            TOKEN,
            ["WORKER_API_BASE_URL is not set; write it like https://api.internal (job 'digest' calls the API)"],
        ),
        (
            "https://api.internal",
            "",
            [
                (
                    "WORKER_API_SERVICE_TOKEN is not set, and nothing is called without one; set it to what the API "
                    "expects in the header x-service-token (job 'digest' calls the API)"
                )
            ],
        ),
        ("", "", ["WORKER_API_BASE_URL is not set", "WORKER_API_SERVICE_TOKEN is not set"]),
        ("https://api.internal", "two\nlines", ["WORKER_API_SERVICE_TOKEN has characters that no header can carry"]),
    ],
)
def test_an_http_job_without_what_it_needs_is_refused(base: str, token: str, lines: list[str]) -> None:
    """All of it at once, by the name of the job, and without the token."""
    with pytest.raises(ConfigurationError) as refusal:
        api_of(http_jobs(), settings(base, token))

    said = str(refusal.value).splitlines()
    assert [line.startswith(words) for line, words in zip(said, lines, strict=True)] == [True] * len(lines)
    assert "two" not in str(refusal.value)


def test_an_http_job_without_httpx_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setattr("relay.upkeep.loading.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"HTTP jobs need the package 'httpx'; run: pip install '\.\[http\]'"):
        api_of(http_jobs(), settings())


def test_without_an_http_job_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls the API in a function of theirs is told there."""
    assert api_of(Jobs(), settings("", "")) is None
    assert isinstance(api_of(Jobs(), settings()), ServiceApi)
    monkeypatch.setattr("relay.upkeep.loading.find_spec", lambda _: None)
    assert api_of(Jobs(), settings()) is None
