"""A consumer with an inbox at work on a real Postgres, and waiting for what becomes of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from consumers import Consumer
from consumers.testing import Deliveries, in_memory
from tests.support.waiting import until_async


@asynccontextmanager
async def running(database: str, handler: Any, **options: Any) -> AsyncIterator[Deliveries]:
    """A consumer of orders with an inbox, whose handlers may take for ever."""
    consumer = Consumer("billing", dedup="inbox", timeout=None, **options)
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


async def comes_about(condition: Callable[[], bool], what: str) -> None:
    """Wait for it; the clock stands still."""

    async def asked() -> bool:
        return condition()

    await until_async(asked, what)


async def happens(deliveries: Deliveries, condition: Callable[[], bool], what: str) -> None:
    """Have time go by until it is so."""

    async def asked() -> bool:
        await deliveries.advance(0.25)
        return condition()

    await until_async(asked, what)
