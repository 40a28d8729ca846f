"""A relay that sleeps beside what it can do nothing about: it is neither deaf to the rest nor kept busy."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from relay import emit
from relay.kernel.observe import PassFinished
from relay.outbox.events import Looked
from relay.outbox.listening import MOST_KEYS
from tests.support.bench import Bench
from tests.support.outbox import event
from tests.support.sleepers import SleepingRelay

# Between the commit and the broker; without being woken it would take half a second. That a machine stalls makes a few
# of them late, and not most.
SOON = 0.25
# Of a relay that would sleep for half a minute.
WOKEN = 10.0
wait = pytest.mark.slow("waits for seconds, as others of its kind do")
pytestmark = pytest.mark.alone("measures a quarter of a second")


@asynccontextmanager
async def repeatedly(bench: Bench, kind: str) -> AsyncIterator[None]:
    """Forty notifications a second about what cannot be taken."""

    async def emitting() -> None:
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        for number in range(1_000, 100_000):
            fields = {"later": {"available_at": tomorrow}, "known": {"dedup_key": "k"}, "behind": {"ordering_key": "k"}}
            await asyncio.to_thread(bench.emit, number, **fields[kind])
            await asyncio.sleep(0.02)

    task = asyncio.create_task(emitting())
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def block(bench: Bench) -> None:
    """Whatever waits in a key has failed, and blocks it."""
    bench.query(
        "update outbox_events set failed_at = now(), failure_reason = 'max_attempts', blocks_key = true"
        " where ordering_key is not null returning 1"
    )


@pytest.mark.parametrize("kind", [pytest.param("later", marks=wait), pytest.param("known", marks=wait), "behind"])
async def test_notifications_in_vain_lead_to_no_passes_and_delay_nothing(bench: Bench, kind: str) -> None:
    """Events for later, events that are known already, events behind a failed one of their key."""
    if kind == "known":
        bench.emit(0, dedup_key="k")
    if kind == "behind":
        bench.emit(0, ordering_key="k")
        block(bench)
    async with SleepingRelay(bench).running() as relay:
        await relay.connected()
        await relay.asleep()
        async with repeatedly(bench, kind):
            passes, looks = relay.told(PassFinished), relay.told(Looked)
            began = time.monotonic()
            await asyncio.sleep(1.0)
            assert relay.told(PassFinished) == passes
            assert 5 <= relay.told(Looked) - looks <= 60 * (time.monotonic() - began)
            late = []
            for number in range(6):
                due = datetime.now(UTC) + timedelta(seconds=0.4)
                (stored,) = await asyncio.to_thread(bench.emit, number)
                began = time.monotonic()
                await relay.published(stored)
                late.append(relay.broker.taken[stored] - began)
                (scheduled,) = await asyncio.to_thread(bench.emit, number, available_at=due.isoformat())
                began = time.monotonic() + (due - datetime.now(UTC)).total_seconds()
                await relay.published(scheduled)
                late.append(relay.broker.taken[scheduled] - began)
            assert sorted(late)[8] < SOON, late


@pytest.mark.parametrize(
    "obstacle",
    ["a row that is locked", "a topic that takes nothing", pytest.param("thousands of blocked keys", marks=wait)],
)
async def test_what_commits_late_is_found_beside_what_cannot_be_taken(bench: Bench, obstacle: str) -> None:
    """Stored while nobody slept, so that nobody was told: the relay keeps looking until it has ended."""
    with psycopg.connect(bench.url) as locking:
        if obstacle == "a row that is locked":
            bench.emit(1_000)
            locking.execute("select from outbox_events for update")
        elif obstacle == "a topic that takes nothing":
            bench.emit(*range(1_000, 1_100), topic="away")
        else:
            with psycopg.connect(bench.url) as connection:
                emit(connection, [event(number, ordering_key=f"k{number}") for number in range(2 * MOST_KEYS + 100)])
            block(bench)
        late = [psycopg.connect(bench.url) for _ in range(6)]
        kinds: tuple[dict[str, str], ...] = ({}, {"ordering_key": "a"}, {"ordering_key": "z"}) * 2
        stored = [str(emit(each, event(n, **kinds[n]), order_lock=False).event_id) for n, each in enumerate(late)]
        relay = SleepingRelay(bench)
        relay.broker.refuse = lambda topic: ConnectionError("away") if topic == "away" else None
        async with relay.running():
            await relay.connected()
            await asyncio.sleep(0.7)
            took = []
            for connection, event_id in zip(late, stored, strict=True):
                connection.commit()
                began = time.monotonic()
                connection.close()
                await relay.published(event_id)
                took.append(relay.broker.taken[event_id] - began)
                await asyncio.sleep(0.13)
            assert sorted(took)[4] < SOON, took
            if obstacle == "thousands of blocked keys":
                await relay.asleep()
                passes = relay.told(PassFinished)
                await asyncio.sleep(1.5)
                assert relay.told(PassFinished) == passes
                (woken,) = bench.emit(9, ordering_key="m")
                began = time.monotonic()
                await relay.published(woken)
                assert relay.broker.taken[woken] - began < WOKEN
