"""The example of notifications: by a fake clock, as its README has it run, and with its process killed."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import httpx
import psycopg
import pytest

import examples.notifications.receipts  # noqa: F401 -- has who asks for receipts registered
from consumers.events import Fate, TicketSettled
from consumers.testing import Deliveries, in_memory
from examples.notifications import upkeep
from examples.notifications.dispatch import push
from examples.programs import equipped
from relay.upkeep.events import RunFault
from relay.upkeep.run import Run, Surroundings
from relay.upkeep.table import Table
from tests.support.commands import ROOT
from tests.support.looking import asked

pytestmark = pytest.mark.slow("runs the cycles of an example")

MOST_LINES = 199
BACKOFF_MINUTES = [1, 2, 4, 8, 16, 32, 60, 60, 60]
STORM = {"region": "north", "title": "A storm"}


@pytest.fixture
def database(inbox_database: str) -> str:
    """One with the example's tables, and phones."""
    equipped(inbox_database, "notifications")
    return inbox_database


class Services:
    """Those that are read, in the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        self.told: dict[str, object] = {"coast": [], "alps": []}
        self._url = url
        monkeypatch.setattr(upkeep, "outside", lambda: client(self._answer))

    async def read(self) -> tuple[dict[str, int], list[str]]:
        """Run the job; what it has counted, and whose faults there were."""
        faults: list[str] = []

        def observe(event: object) -> None:
            assert isinstance(event, RunFault)
            faults.append(event.what)

        around = Surroundings(
            connect=lambda: psycopg.AsyncConnection.connect(self._url, autocommit=True),
            schema="public",
            observe=observe,
        )
        run = Run(job="ingest", slot=datetime.now(UTC), worker="test", around=around, stopping=asyncio.Event())
        await upkeep.ingest(run)
        assert run.errors == len(faults)
        return dict(run.counters), faults

    def _answer(self, request: httpx.Request) -> httpx.Response:
        told = self.told[request.url.path.rpartition("/")[2]]
        return httpx.Response(503) if told is None else httpx.Response(200, json=told)


def client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    """One that asks the test."""
    return httpx.AsyncClient(base_url="http://outside", transport=httpx.MockTransport(answer))


def report(number: str, storm: str, title: str = "A storm") -> dict[str, str]:
    """What a service says."""
    return {"number": number, "storm": storm, "region": "north", "title": title}


@pytest.mark.parametrize("away", [None, "no list", [report("2", "beta"), {"number": "3", "storm": "gamma"}]])
async def test_a_service_that_fails_is_none_of_the_others_business(
    database: str, monkeypatch: pytest.MonkeyPatch, away: object
) -> None:
    """Of a page that nobody understands nothing is kept; when it is mended, all of it is."""
    services = Services(monkeypatch, database)
    services.told = {"coast": away, "alps": [report("1", "alpha")]}
    assert await services.read() == ({"news": 1}, ["coast"])
    assert asked(database, "select service, storm from sources") == [("alps", "alpha")]
    services.told["coast"] = [report("2", "beta"), report("3", "gamma")]
    assert await services.read() == ({"news": 2}, [])
    assert emitted(database) == ["alpha", "beta", "gamma"]


async def test_a_storm_is_announced_once_whoever_tells_of_it(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is known by its service and number; a later one changes the title, and announces nothing."""
    services = Services(monkeypatch, database)
    services.told = {"coast": [report("1", "alpha"), report("1", "alpha"), report("2", "alpha", "A gale")]}
    services.told["alps"] = [report("1", "alpha", "A hurricane")]
    assert await services.read() == ({"news": 2}, [])
    assert await services.read() == ({"news": 0}, [])
    assert emitted(database) == ["alpha"]
    assert asked(database, "select storm, title from storms") == [("alpha", "A hurricane")]
    assert asked(database, "select service, number from sources order by 1, 2") == [
        ("alps", "1"),
        ("coast", "1"),
        ("coast", "2"),
    ]


class Provider:
    """One in the test's hand: what it says of each phone, at once or in receipts."""

    def __init__(self) -> None:
        self.at_once: dict[str, str] = {}
        self.receipts: dict[str, str] = {}
        """One word of each phone for each of its pushes; the last one for all further ones."""
        self.busy = False
        self.sent: list[tuple[str, str]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        """What it says."""
        given = json.loads(request.content)
        if request.url.path == "/receipts":
            return httpx.Response(200, json={each: said for each in given if (said := self._receipt(each))})
        if self.busy:
            return httpx.Response(429)
        self.sent += [(each["to"], each["name"]) for each in given]
        return httpx.Response(200, json=[self._taken(each["to"], each["name"]) for each in given])

    def _receipt(self, ticket: str) -> str:
        token = ticket.partition("/")[2]
        said, _, later = self.receipts.get(token, "").partition(" ")
        if later:
            self.receipts[token] = later
        return said

    def _taken(self, token: str, name: str) -> dict[str, str]:
        return {"error": self.at_once[token]} if token in self.at_once else {"ticket": name}


@asynccontextmanager
async def pushing(database: str, provider: Provider, *tokens: str) -> AsyncIterator[tuple[Deliveries, UUID]]:
    """The consumer at work, where a storm was announced to these phones."""
    with psycopg.connect(database) as connection:
        connection.execute("delete from phones")
        for token in tokens:
            connection.execute("insert into phones (token, region) values (%s, 'north')", [token])
        connection.execute("insert into storms (storm, region, title) values ('alpha', 'north', 'A storm')")
    async with client(provider.answer) as state, in_memory(push, state=state, database=database) as deliveries:
        event = deliveries.publish("storm.announced", STORM, aggregate_type="storm", aggregate_id="alpha")
        yield deliveries, event


async def until(database: str, deliveries: Deliveries, condition: Callable[[], bool]) -> None:
    """Have time go by until it is so; hardly any while something is worked on, or its lease would end."""
    at_work = "select count(*) from inbox_deliveries where state = 'processing'"
    async with asyncio.timeout(20):
        while not condition():
            await deliveries.advance(20.0 if asked(database, at_work) == [(0,)] else 0.1)
            # The database answers in real time.
            await asyncio.sleep(0.005)


async def test_a_push_is_tried_again_after_minutes_that_double_to_an_hour(database: str) -> None:
    """1, 2, 4, 8, 16, 32, 60, 60 …: under one name, until its tenth attempt."""
    provider = Provider()
    provider.at_once["a"] = "again"
    waited: list[float] = []
    async with pushing(database, provider, "a") as (deliveries, event):
        while (settled := await deliveries.wait_for(f"{event}/a")).again_in is not None:
            waited.append(settled.again_in / 60)
            await deliveries.advance(settled.again_in)
    assert waited == BACKOFF_MINUTES
    assert settled.fate is Fate.DEAD
    assert provider.sent == [("a", f"{event}/a")] * 10


async def test_each_phone_of_a_batch_has_an_end_of_its_own(database: str) -> None:
    """Whom the provider does not know is deactivated, at once or by a receipt; the flag of the storm stays."""
    provider = Provider()
    provider.at_once = {"b": "gone", "c": "too long"}
    provider.receipts = {"a": "ok", "d": "gone", "e": "too old", "f": "again ok"}
    async with pushing(database, provider, *"abcdefg") as (deliveries, event):
        await deliveries.wait_for(f"{event}/a")
        flagged = asked(database, "select notified_at from storms where notified_at is not null")
        await until(database, deliveries, lambda: len(outcomes(database)) == 5)
        provider.receipts["f"] = "ok"
        await until(database, deliveries, lambda: len(outcomes(database)) == 7)
        again = [each.again_in for each in deliveries.events if isinstance(each, TicketSettled) and each.again_in]
    assert again == [60.0]
    assert outcomes(database) == {
        "a": "ok",
        "b": "invalid",
        "c": "dead",
        "d": "invalid",
        "e": "dead",
        "f": "ok",
        "g": "unknown",
    }
    assert asked(database, "select token from phones where not active order by 1") == [("b",), ("d",)]
    assert flagged == asked(database, "select notified_at from storms") != []
    assert Counter(token for token, _ in provider.sent) == Counter("abcdeffg")


async def test_who_has_changed_his_mind_meanwhile_gets_nothing(database: str) -> None:
    """A busy provider takes no attempt, and phones are looked at again before each."""
    provider = Provider()
    provider.busy = True
    provider.receipts = {"a": "ok"}
    async with pushing(database, provider, "a", "b", "c") as (deliveries, event):
        for token in "abc":
            assert (await deliveries.wait_for(f"{event}/{token}")).fate is Fate.DEFERRED
        with psycopg.connect(database) as connection:
            connection.execute("update phones set muted = token = 'b', active = token <> 'c'")
        provider.busy = False
        await until(database, deliveries, lambda: len(outcomes(database)) == 3)
    assert outcomes(database) == {"a": "ok", "b": "skipped", "c": "skipped"}
    assert provider.sent == [("a", f"{event}/a")]
    assert asked(database, "select distinct attempt_count from inbox_deliveries where recipient <> ''") == [(1,)]


def test_the_example_does_what_it_says() -> None:
    """And ends as a program that succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.notifications"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("ingest: 3 reports of 2 storms were read; of the deliveries to phones 12 are dead, ")
    assert told[3].startswith("31 days later, archive: ")
    assert "errors=1" in done.stdout


async def test_each_cycle_has_the_times_of_its_readme() -> None:
    """Where a minute is one: the clean-up takes what is a year old, and what was exported is dropped after that."""
    schedules = {job.name: str(job.schedule).replace(" in ", " ").split()[1:] for job in upkeep.jobs}
    assert schedules == {
        "ingest": ["10m"],
        "clean_up": ["17", "3", "*", "*", "*", "Europe/Berlin"],
        "archive": ["17", "4", "*", "*", "*", "Europe/Berlin"],
    }
    (confirmer,) = push.confirmers.all()
    assert (confirmer.every, confirmer.unknown_after) == (timedelta(minutes=10), timedelta(minutes=30))
    asked_for: list[object] = []

    class Asked:
        async def move(self, table: Table) -> None:
            asked_for.append((table.name, table.age, table.older_than, table.to))

        async def export(self) -> None:
            asked_for.append("export")

        async def drop_exported(self) -> None:
            asked_for.append("drop")

    for job in (upkeep.clean_up, upkeep.archive):
        await job(cast("Run", Asked()))
    assert asked_for == [("sources", "read_at", "365d", "archive"), "export", "drop"]


def test_the_example_is_short() -> None:
    """An example that takes longer to read than the page about it helps nobody."""
    sources = (ROOT / "examples" / "notifications").glob("*.py")
    assert sum(len(source.read_text().splitlines()) for source in sources) <= MOST_LINES


def outcomes(database: str) -> dict[str, str]:
    """What became of each phone's delivery, of those that are over."""
    over = "select recipient, outcome from inbox_deliveries where recipient <> '' and outcome is not null"
    return dict(asked(database, over))


def emitted(database: str) -> list[str]:
    """The storms that were announced, in their order."""
    return [storm for (storm,) in asked(database, "select aggregate_id from outbox_events order by id")]
