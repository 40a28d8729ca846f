"""A client of a web service asks for its work, waits, and is told, by FastAPI and by Starlette, in process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Route

from consumers.testing import FakeClock
from consumers.waiting import Enqueued, Refusal, Waiting, enqueue, wait_endpoint, wait_response
from relay.kernel.clock import Clock
from tests.support.inbox_worker import Worker, awaited, holds

FAILURES: dict[str, str | Refusal] = {
    "CARD": Refusal("CARD_REFUSED", "Take another card."),
    "NO_ORDER": "ORDER_UNKNOWN",
}


class Service:
    """A service with invoices, in each of the ways that there are to write it."""

    def __init__(self, database: str, waiting: Waiting) -> None:
        self.database = database
        self.waiting = waiting

    async def begin(self, number: str, token: str | None) -> Enqueued:
        """Who may have it, and what is to be done for it."""
        if token != "mine":  # noqa: S105 -- of a test
            raise HTTPException(403)
        async with await psycopg.AsyncConnection.connect(self.database) as connection:
            return await enqueue(
                connection, consumer="invoices", event_type="invoice.requested", data=number, key=f"invoice-{number}"
            )

    async def of_request(self, request: Request) -> Enqueued:
        """The same of a request."""
        return await self.begin(request.path_params["number"], request.headers.get("token"))

    def endpoint(self) -> Any:
        """One that waits."""
        return wait_endpoint(self.waiting, self.of_request, failures=FAILURES)

    def fastapi(self) -> Any:
        """By a route that is the endpoint."""
        app = FastAPI()
        app.get("/invoices/{number}")(self.endpoint())
        return app

    def depending(self) -> Any:
        """By a function of its own, with dependencies."""
        app = FastAPI()

        async def invoice(number: str, token: Annotated[str | None, Header()] = None) -> Enqueued:
            return await self.begin(number, token)

        @app.get("/invoices/{number}")
        async def show(request: Request, delivery: Annotated[Enqueued, Depends(invoice)]) -> Any:
            return await wait_response(self.waiting, request, delivery, failures=FAILURES)

        return app

    def starlette(self) -> Any:
        """By a route of Starlette's."""
        return Starlette(routes=[Route("/invoices/{number}", self.endpoint())])

    def behind_middleware(self) -> Any:
        """Behind one that has a way of its own with what a request receives."""
        app = self.fastapi()

        async def through(request: Request, call_next: Any) -> Any:
            return await call_next(request)

        app.add_middleware(BaseHTTPMiddleware, dispatch=through)
        return app


def waiters(waiting: Waiting) -> int:
    """How many wait."""
    return len(waiting._lookout.waiters) if waiting._lookout is not None else 0


WAYS = ["fastapi", "depending", "starlette", "behind_middleware"]


@pytest.fixture
def worker(inbox_database: str) -> Worker:
    """What plays the consumer."""
    return Worker(inbox_database)


@asynccontextmanager
async def serving(
    worker: Worker, way: str = "fastapi", clock: Clock | None = None, **options: Any
) -> AsyncIterator[tuple[AsyncClient, Waiting]]:
    """A client of the service."""
    async with Waiting(worker.database, clock=clock, app="waiter", **options) as waiting:
        app = getattr(Service(worker.database, waiting), way)()
        transport = ASGITransport(app)
        async with AsyncClient(transport=transport, base_url="http://a", headers={"token": "mine"}) as client:
            yield client, waiting


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_asks_waits_and_is_told(worker: Worker, way: str) -> None:
    """Pending at first, ready when it is woken up, and ready at once from then on; enqueued only once."""
    async with serving(worker, way, FakeClock()) as (client, _):
        pending = await client.get("/invoices/42?waitMs=0")
        assert (pending.status_code, pending.json()) == (202, {"status": "pending", "retryAfterMs": 1000})
        assert pending.headers["retry-after"] == "1"
        assert pending.headers["content-type"] == "application/json"
        assert pending.headers["cache-control"] == "no-store"

        asking = asyncio.create_task(client.get("/invoices/42"))
        await awaited(worker.database)
        await worker.do()
        async with asyncio.timeout(20):
            ready = await asking
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "result": {"number": 42}})
        assert (await client.get("/invoices/42?waitMs=30000")).json() == ready.json()


async def test_a_failure_is_told_in_the_resources_words(worker: Worker) -> None:
    """And never in the consumer's, which may say anything."""
    async with serving(worker) as (client, _):
        for number, code in (("1", "CARD"), ("2", "NO_ORDER"), ("3", "ValueError")):
            await client.get(f"/invoices/{number}?waitMs=0")
            await worker.do(state="failed", what="failed", outcome="dead", result="", code=code, error="secret 4711")
        told = [await client.get(f"/invoices/{number}") for number in (1, 2, 3)]
    assert [each.status_code for each in told] == [422, 422, 422]
    assert [each.json() for each in told] == [
        {"status": "failed", "code": "CARD_REFUSED", "message": "Take another card."},
        {"status": "failed", "code": "ORDER_UNKNOWN"},
        {"status": "failed", "code": "FAILED"},
    ]
    assert not any("4711" in each.text for each in told)


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_wait_and_a_stranger_are_refused(worker: Worker, way: str) -> None:
    """By whoever decides it: nothing is waited for."""
    async with serving(worker, way) as (client, _):
        wrong = await client.get("/invoices/42?waitMs=soon")
        stranger = await client.get("/invoices/42", headers={"token": "theirs"})
    assert (wrong.status_code, wrong.json()["message"]) == (
        400,
        "waitMs is 'soon'; give a whole number of milliseconds, from 0 to 30000",
    )
    assert stranger.status_code == 403


async def test_the_endpoint_enqueues_nothing_for_a_wrong_wait(worker: Worker) -> None:
    """Its client will ask again."""
    async with serving(worker) as (client, _):
        await client.get("/invoices/42?waitMs=-1")
    assert await worker.claim() == []


async def test_what_was_removed_and_what_cannot_be_reached_have_codes_of_their_own(worker: Worker) -> None:
    """404, and 503 with a moment to come again."""
    app = FastAPI()

    @app.get("/{delivery}")
    async def show(request: Request, delivery: int) -> Any:
        return await wait_response(there if delivery > 0 else away, request, abs(delivery))

    async with (
        Waiting(worker.database) as there,
        Waiting("postgresql://nobody@127.0.0.1:1/nothing") as away,
        AsyncClient(transport=ASGITransport(app), base_url="http://a") as client,
    ):
        unknown = await client.get("/4711")
        assert (unknown.status_code, unknown.json()) == (404, {"status": "unknown"})
        unavailable = await client.get("/-1?waitMs=30")
        assert (unavailable.status_code, unavailable.headers["retry-after"]) == (503, "1")
        assert unavailable.json() == {"status": "unavailable", "retryAfterMs": 1000}


@pytest.mark.parametrize("way", WAYS)
async def test_when_the_client_goes_nobody_waits_for_it_any_longer(worker: Worker, way: str) -> None:
    """Its work goes on; who else waits for it is told."""
    async with serving(worker, way, FakeClock()) as (client, waiting):
        asking = asyncio.create_task(client.get("/invoices/42"))
        await awaited(worker.database)

        goes = asyncio.Event()
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})

        async def receive() -> dict[str, Any]:
            if messages.empty():
                await goes.wait()
                return {"type": "http.disconnect"}
            return messages.get_nowait()

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/invoices/42",
            "raw_path": b"/invoices/42",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"token", b"mine")],
            "server": ("a", 80),
            "client": ("b", 1),
        }
        transport: Any = client._transport
        gone = asyncio.create_task(transport.app(scope, receive, send))
        await holds(lambda: waiters(waiting) == 2, "both wait")
        goes.set()
        async with asyncio.timeout(20):
            await gone
        assert waiters(waiting) == 1
        assert not sent or sent[0]["status"] == 499

        await worker.do()
        async with asyncio.timeout(20):
            assert (await asking).status_code == 200


async def test_a_hundred_clients_hold_two_connections(worker: Worker) -> None:
    """And are all told by what is notified."""
    async with serving(worker, clock=FakeClock()) as (client, waiting):
        asked = []
        for number in range(100):
            asked.append(asyncio.create_task(client.get(f"/invoices/{number}")))
            if number % 20 == 19:  # each connects to enqueue
                await holds(lambda: waiters(waiting) == len(asked), "they wait")
        await awaited(worker.database, 100)
        await worker.do()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {200}
