"""The examples of docs/waiting.md, run the way they stand there: in one process, with the consumer of the page."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from httpx import ASGITransport, AsyncClient, Response

from consumers.testing import in_memory
from tests.support.commands import ROOT
from tests.support.waiting import STEP

PAGE = (ROOT / "docs/waiting.md").read_text(encoding="utf-8")
SNIPPETS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OWNER = {"authorization": "Bearer of-its-owner"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, inbox_database: str) -> None:
    """What the page takes for granted."""
    monkeypatch.setenv("DATABASE_URL", inbox_database)


def run(place: int) -> dict[str, Any]:
    """A snippet's names, in a module of its own."""
    names: dict[str, Any] = {"__name__": f"snippet_{place}"}
    exec(compile(SNIPPETS[place], f"snippet {place}", "exec"), names)  # noqa: S102 -- the page's own words
    return names


@pytest.fixture
async def consumer(inbox_database: str) -> AsyncIterator[None]:
    """The consumer of the page, at work: it looks for what others have stored when its clock is moved."""
    async with in_memory(run(1)["invoices"], database=inbox_database) as deliveries:

        async def tick() -> None:
            while True:
                await deliveries.advance(0.1)
                await asyncio.sleep(STEP)

        ticking = asyncio.create_task(tick())
        yield
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def ask(app: Any, order: str, query: str = "", headers: dict[str, str] = OWNER) -> Response:
    """What a client of the service is told."""
    async with AsyncClient(transport=ASGITransport(app), base_url="http://shop") as client:
        return await client.get(f"/orders/{order}/invoice{query}", headers=headers)


def test_there_is_a_test_for_each_snippet() -> None:
    """A page with one more has one that nobody has run."""
    assert len(SNIPPETS) == 4


async def test_the_service_of_the_page_tells_its_client(consumer: None) -> None:
    """What was done, what has failed, and nothing to a stranger."""
    names = run(0)
    app = names["app"]
    async with app.router.lifespan_context(app):
        ready = await ask(app, "o-7", "?waitMs=20000")
        assert (ready.status_code, ready.json()) == (200, {"invoice": {"number": "2026-o-7"}})
        failed = await ask(app, "o-unpaid")
        assert (failed.status_code, failed.json()) == (
            422,
            {"status": "failed", "code": "ORDER_NOT_PAID", "message": "The order is not paid yet."},
        )
        assert (await ask(app, "o-7", headers={})).status_code == 403


async def test_a_function_with_dependencies_does_the_same(consumer: None) -> None:
    """In FastAPI's own style."""
    names = run(2)
    async with names["pool"], names["waiting"]:
        ready = await ask(names["app"], "o-7")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "result": {"number": "2026-o-7"}})
        assert (await ask(names["app"], "o-unpaid")).json() == {"status": "failed", "code": "ORDER_NOT_PAID"}
        assert (await ask(names["app"], "o-7", headers={})).status_code == 403


async def test_another_framework_is_given_values(inbox_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of which it makes what it likes."""
    with psycopg.connect(inbox_database) as connection:
        body = await run(3)["ask"](connection)
    assert body == b'{"status":"pending","retryAfterMs":1000}'
    assert capsys.readouterr().out.startswith("again in 1.0\n202 {'cache-control': 'no-store', 'retry-after': '1'}")


async def test_a_role_with_the_rights_of_the_page_may_do_all_of_it(
    inbox_database: str, monkeypatch: pytest.MonkeyPatch, consumer: None
) -> None:
    """Enqueue, and wait."""
    (grants,) = re.findall(r"^```sql\n(grant.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with psycopg.connect(inbox_database, autocommit=True) as owner:
        role = f"web_of_{owner.info.dbname}"
        owner.execute(f"create role {role}".encode())
        try:
            owner.execute(grants.replace("shop_web", role).encode())
            monkeypatch.setenv(
                "DATABASE_URL", f"{inbox_database}{'&' if '?' in inbox_database else '?'}options=-c%20role%3D{role}"
            )
            names = run(2)
            async with names["pool"], names["waiting"]:
                assert (await ask(names["app"], "o-7")).status_code == 200
        finally:
            owner.execute(f"drop owned by {role}; drop role {role}".encode())
