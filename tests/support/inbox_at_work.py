"""A consumer with an inbox at work on a real Postgres, and waiting for what becomes of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from consumers import Consumer
from consumers.testing import Deliveries, in_memory
from tests.support.waiting import until_async

# Sessions in the middle of a statement, unless it is somebody else whom it waits for.
BUSY = """
select from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and state = 'active'
   and wait_event_type is distinct from 'Lock'
"""


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


async def goes_by(deliveries: Deliveries, seconds: float, condition: Callable[[], Any]) -> None:
    """Have time go by until it is so, so many seconds at once.

    The database answers in real time, and none goes by while it is at work: leases would run out over a slow answer.
    """
    place = deliveries._world.database
    assert place
    async with asyncio.timeout(60), await psycopg.AsyncConnection.connect(place.url, autocommit=True) as looking:
        while not condition():
            await deliveries.advance(seconds)
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.005))])
            while await (await looking.execute(BUSY)).fetchone() is not None:
                pass
