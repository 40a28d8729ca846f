"""Consumers with an inbox that are killed, stopped and poisoned, over a Postgres that restarts: effects are counted."""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from consumers.inbox.schema import INBOX
from relay.dev.postgres import StopMode
from relay.dev.stack import Part, Stack
from relay.postgres.schema import Versions
from relay.testing import fresh_database
from tests.support.chaos import FULL, sized
from tests.support.consuming import Booking, booking, publish
from tests.support.looking import asked
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

EVENTS = sized(2_000, 100_000)
PROCESSES = sized(2, 4)
LEAST_KILLS = sized(3, 60)
RESTARTS = 2
LEASE_SECONDS = 2.0
SETTINGS = {
    "INBOX_LEASE_MS": "2s",
    "INBOX_HEARTBEAT_MS": "500ms",
    "INBOX_POLL_MS": "200ms",
    "INBOX_CONNECTIONS": "10",
    "CONSUMERS_ACK_DEADLINE": "10s",
}
LONG = sized(240, 900)
# A lease that is over is taken by whoever looks next; what takes longer than this is stuck. Beside other work it takes
# a while until a process has begun, and one that Postgres was away for looks again after five seconds.
STUCK_SECONDS = 5.0 if FULL else 20.0
_COMPLETE = re.compile(r"created(,processing,(requeued:stale|retry))*,processing,done")


@pytest.fixture(scope="module")
def servers() -> Iterator[Stack]:
    """A Postgres that is restarted, and keeps what it has said it keeps; and an emulator."""
    with Stack.start([Part.POSTGRES, Part.PUBSUB], durable=True) as stack:
        yield stack


@pytest.fixture
async def side(servers: Stack) -> AsyncIterator[PubSubSide]:
    """The broker, from a publisher's side."""
    side = PubSubSide(servers.pubsub_emulator_host)
    yield side
    await side.close()


@dataclass
class Site:
    """A subscription, its consumers, and the inbox between them."""

    side: PubSubSide
    channel: Channel
    consumers: Booking
    database: str
    servers: Stack
    go: Path

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database answers, as soon as it does."""
        return asked(self.database, statement.encode(), values)

    def settled(self, events: int) -> bool:
        """Whether so many deliveries are done or failed."""
        with suppress(psycopg.OperationalError):
            ((found,),) = self.ask("select count(*) from inbox_deliveries where state in ('done', 'failed')")
            return bool(found >= events)
        return False


@pytest.fixture
async def site(servers: Stack, side: PubSubSide, tmp_path: Path) -> AsyncIterator[Site]:
    """A subscription and an inbox of its own, and no consumer yet."""
    channel, dead_letters = await side.open(), await side.open()
    go = tmp_path / "go"
    with fresh_database(servers.database_url) as database:
        with psycopg.connect(database) as connection:
            Versions(INBOX).migrate(connection, "public")
            connection.execute("create table effects (event_id uuid, process int)")
        addresses = {**servers.environment, "DATABASE_URL": database, "GO": str(go), **SETTINGS}
        program = "tests.chaos.inbox_booking:consumer"
        with booking(channel, dead_letters.topic, addresses, tmp_path, program) as consumers:
            yield Site(side, channel, consumers, database, servers, go)


@dataclass
class Watch:
    """Looks every now and then for leases that are over, and that nobody takes."""

    site: Site
    longest: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until the end."""
        while not self._over.wait(0.2):
            with suppress(psycopg.OperationalError):
                ((late,),) = self.site.ask(_LATEST)
                self.longest = max(self.longest, late)

    def end(self) -> None:
        """Look no more."""
        self._over.set()


@pytest.mark.slow("kills processes for seconds")
@pytest.mark.timeout(1_200)
async def test_effects_are_there_exactly_once_though_processes_are_killed_and_postgres_restarts(site: Site) -> None:
    """A kill a second, and two crashes of Postgres: each effect is there once, and no delivery is stuck."""
    events = await publish(site.side, site.channel, EVENTS)
    for _ in range(PROCESSES):
        site.consumers.start()
    watch = Watch(site)
    watching = threading.Thread(target=watch.run)
    watching.start()
    began, kills, restarts = time.monotonic(), 0, 0
    try:
        await asyncio.to_thread(until, lambda: site.settled(1), "the first delivery", LONG)
        # All of it kills until the last delivery is done; a little kills a few times.
        while kills < LEAST_KILLS or (FULL and not await asyncio.to_thread(site.settled, EVENTS)):
            assert time.monotonic() - began < LONG, site.consumers.said()
            due = time.monotonic() + 1.0
            await asyncio.to_thread(until, lambda due=due: time.monotonic() > due, "the next kill")  # type: ignore[misc]
            await asyncio.to_thread(site.consumers.kill_one_at_work)
            kills += 1
            if restarts < RESTARTS and kills >= (restarts + 1) * LEAST_KILLS // (RESTARTS + 1):
                assert site.servers.postgres
                await asyncio.to_thread(site.servers.postgres.restart, StopMode.IMMEDIATE)
                restarts += 1
            # One that begins while Postgres is away ends, for its platform to start it again.
            site.consumers.start()
        await asyncio.to_thread(until, lambda: site.settled(EVENTS), "all deliveries are over", LONG)
        took = time.monotonic() - began
    finally:
        watch.end()
        watching.join()

    made = dict(site.ask("select event_id, count(*) from effects group by event_id"))
    assert set(made) == events
    assert set(made.values()) == {1}
    assert site.ask("select distinct state, outcome from inbox_deliveries") == [("done", "ok")]
    assert site.ask("select count(*) from inbox_leases") == [(0,)]
    histories = site.ask(
        "select string_agg(what, ',' order by id), bool_and(coalesce(at >= earlier, true)), count(*) "
        "from (select *, lag(at) over (partition by delivery_id order by id) as earlier from inbox_history) as entry "
        "group by delivery_id"
    )
    assert len(histories) == EVENTS
    assert [each for each in histories if not _COMPLETE.fullmatch(each[0]) or not each[1]] == []
    assert restarts == RESTARTS
    assert watch.longest < STUCK_SECONDS, f"a lease was over for {watch.longest:.1f} s"
    ((stale,),) = site.ask("select sum(stale_count) from inbox_deliveries")
    print(  # noqa: T201 -- the figure
        f"\n{EVENTS} deliveries, {PROCESSES} processes, {kills} killed, Postgres crashed {restarts} times, "
        f"{took:.0f} s: effects exactly once, {stale} taken over, the longest overdue lease {watch.longest:.1f} s"
    )


@pytest.mark.slow("kills processes for seconds")
@pytest.mark.timeout(300)
async def test_a_delivery_that_kills_its_process_costs_its_neighbours_nothing(site: Site) -> None:
    """It ends failed after its attempts; of a thousand neighbours none is failed or charged."""
    (poison,) = await publish(site.side, site.channel, 1, data={"do": "die"})
    neighbours = await publish(site.side, site.channel, 1_000)
    crashes = 0
    process = site.consumers.start(ATTEMPTS="3")
    deadline = time.monotonic() + 240.0
    while not await asyncio.to_thread(site.settled, 1_001):
        assert time.monotonic() < deadline, site.consumers.said()
        if process.poll() is not None:
            crashes += 1
            site.consumers.running.remove(process)
            process = site.consumers.start(ATTEMPTS="3")
        await asyncio.to_thread(process_or_time, process, 0.05)

    assert site.ask("select state, error_code, attempt_count from inbox_deliveries where event_id = %s", poison) == [
        ("failed", "RETRIES_EXHAUSTED", 3)
    ]
    charged = site.ask("select distinct state, attempt_count from inbox_deliveries where event_id <> %s", poison)
    assert charged == [("done", 1)]
    assert site.ask("select count(*), count(distinct event_id) from effects") == [(1_000, 1_000)]
    assert set(neighbours) == {event for (event,) in site.ask("select event_id from effects")}
    print(f"\n{crashes} crashes, 1,000 neighbours: none failed, none charged")  # noqa: T201 -- the figure


def process_or_time(process: Any, seconds: float) -> None:
    """Wait for the end of a process, for so long."""
    with suppress(Exception):
        process.wait(seconds)


@pytest.mark.timeout(120)
async def test_an_owner_that_was_stopped_beyond_its_lease_can_neither_complete_nor_fail_nor_renew(site: Site) -> None:
    """What it says when it goes on is discarded, and told."""
    stopped = site.consumers.start()
    events: dict[str, UUID] = {}
    for do in ("complete", "raise", "return"):
        (events[do],) = await publish(site.side, site.channel, 1, data={"do": do}, event_type="order.slow")
    log = site.consumers.log_of[stopped.pid]
    await asyncio.to_thread(until, lambda: log.read_text().count(f"in {stopped.pid}") == 3, "all three have begun")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        other = site.consumers.start()
        taken = "select count(*) from inbox_deliveries where stale_count = 1"
        await asyncio.to_thread(until, lambda: site.ask(taken) == [(3,)], "all three were taken over")
        site.go.touch()
        await asyncio.to_thread(until, lambda: site.ask(_ENDED) == [(2,)], "the other has ended two of them")
        before = site.ask(_ROWS)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    lost = re.compile(r'"outcome": ?"lease_lost"|outcome=lease_lost')
    await asyncio.to_thread(until, lambda: len(lost.findall(log.read_text())) >= 3, "it says that all three are lost")
    ignored = re.compile("outcome_ignored")
    assert len(ignored.findall(log.read_text())) == 3, log.read_text()

    assert site.ask("select process from effects") == [(other.pid,)]
    for event_id, state, token, owner in before:
        if state == "done":
            assert (event_id, state, token, owner) in site.ask(_ROWS)


_LATEST = "select coalesce(max(extract(epoch from clock_timestamp() - expires_at)), 0)::float8 from inbox_leases"
_ENDED = "select count(*) from inbox_deliveries where state = 'done'"
_ROWS = "select event_id, state, token, locked_by from inbox_deliveries"
