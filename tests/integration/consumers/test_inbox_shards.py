"""Deliveries that are divided among processes: each belongs to one of them, whatever the others do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Received
from consumers.events import Fate
from consumers.sharding import shard_of
from consumers.testing import Deliveries, FakeClock, in_memory
from consumers.testing.database import Place
from tests.support.inbox import rows
from tests.support.waiting import until_async

SHARDS = 2
TENANTS = [f"tenant-{number}" for number in range(12)]


class Worker:
    """The process of a shard; it can be held up."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.handled: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    @asynccontextmanager
    async def running(self, database: str, clock: FakeClock, **options: Any) -> AsyncIterator[Deliveries]:
        """A consumer of orders of tenants, at work."""
        consumer = Consumer("billing", dedup="inbox", timeout=None, shard_by=lambda event: str(event.data), **options)

        @consumer.on("order.*")
        async def handle(event: Received[str]) -> None:
            self.handled.append(event.data)
            await self.open.wait()

        place = Place(database, shard=self.shard, shards=SHARDS)
        async with in_memory(consumer, database=place, clock=clock) as deliveries:
            yield deliveries


def of_shard(shard: int, names: list[str]) -> list[str]:
    """Those that belong to it."""
    return [name for name in names if shard_of(name) % SHARDS == shard]


async def ended(database: str, deliveries: Deliveries, many: int) -> None:
    """Wait until so many are done; whoever has not heard of them looks every now and then."""

    async def are_done() -> bool:
        await deliveries.advance(0.5)
        return [each["state"] for each in rows(database)].count("done") == many

    await until_async(are_done, f"{many} deliveries are done")


@pytest.mark.parametrize("ordered", [False, True])
async def test_two_processes_handle_all_and_neither_what_is_the_others(inbox_database: str, *, ordered: bool) -> None:
    """Both receive, and what one of them stores is handled by whom it belongs to."""
    clock, workers = FakeClock(), [Worker(0), Worker(1)]
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(worker.running(inbox_database, clock)) for worker in workers]
        for place, tenant in enumerate(TENANTS):
            both[place % 2].publish("order.paid", tenant, ordering_key=tenant if ordered else "")
        await ended(inbox_database, both[0], len(TENANTS))

    assert [sorted(worker.handled) for worker in workers] == [sorted(of_shard(shard, TENANTS)) for shard in (0, 1)]


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_belongs_to_a_process_that_is_away_waits_for_it_and_keeps_nobody_else(
    inbox_database: str, *, ordered: bool
) -> None:
    """However many of them there are, and although they come first; the other one has a single permit."""
    theirs = of_shard(1, [f"a-{number:02}" for number in range(60)])
    ours = of_shard(0, [f"z-{number:02}" for number in range(6)])
    worker = Worker(0)
    async with worker.running(inbox_database, FakeClock(), concurrency=1) as deliveries:
        for tenant in (*theirs, *ours):
            deliveries.publish("order.paid", tenant, ordering_key=tenant if ordered else "")
        await ended(inbox_database, deliveries, len(ours))

    assert sorted(worker.handled) == ours
    assert {each["state"] for each in rows(inbox_database) if each["shard"] % SHARDS == 1} == {"pending"}


async def test_a_suspect_of_another_process_is_not_waited_for(inbox_database: str) -> None:
    """It is to run alone, where it belongs: here others begin although something is handled."""
    ours, theirs = of_shard(0, TENANTS), of_shard(1, TENANTS)
    worker = Worker(0)
    worker.open.clear()
    async with worker.running(inbox_database, FakeClock()) as deliveries:
        deliveries.publish("order.paid", theirs[0])
        first = deliveries.publish("order.paid", ours[0])

        async def is_handled() -> bool:
            await deliveries.advance(0.5)
            return worker.handled == ours[:1]

        await until_async(is_handled, "the first one is handled")
        with psycopg.connect(inbox_database, autocommit=True) as connection:
            connection.execute("update inbox_deliveries set suspect = true where state = 'pending'")
        second = deliveries.publish("order.paid", ours[1])

        async def both_are() -> bool:
            await deliveries.advance(0.5)
            return worker.handled == ours[:2]

        await until_async(both_are, "the second one is handled beside it", 5.0)
        worker.open.set()
        assert {(await deliveries.wait_for(event)).fate for event in (first, second)} == {Fate.DONE}
