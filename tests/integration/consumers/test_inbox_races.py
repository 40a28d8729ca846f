"""What happens to deliveries of an inbox where two things happen at once, and where what is said comes too late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from consumers import Consumer, Received
from consumers.events import Fate
from consumers.inbox.rows import Head
from consumers.inbox.table import Table
from consumers.testing import Deliveries, in_memory


@asynccontextmanager
async def running(database: str, handler: Any, **options: Any) -> AsyncIterator[Deliveries]:
    """A consumer of orders with an inbox."""
    consumer = Consumer("billing", dedup="inbox", **options)
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


async def test_the_next_of_a_key_does_not_wait_for_a_look(
    inbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the one before it ends while a walk that has still seen it at work is under way."""
    walk, may_end, seen = Table.walk, asyncio.Event(), asyncio.Event()

    async def slow_walk(table: Table, after: str, most: int) -> list[Head]:
        heads = await walk(table, after, most)
        if any(not head.ready for head in heads) and not may_end.is_set():
            may_end.set()
            await seen.wait()
        return heads

    async def handler(event: Received[Any]) -> None:
        if event.data == 0:
            await may_end.wait()

    monkeypatch.setattr(Table, "walk", slow_walk)
    async with running(inbox_database, handler) as deliveries:
        first, second = (deliveries.publish("order.paid", n, ordering_key="k") for n in range(2))
        assert (await deliveries.wait_for(first)).fate is Fate.DONE
        seen.set()
        assert (await deliveries.wait_for(second)).fate is Fate.DONE
