"""Moves what was published so far out of the outbox, until it is told to end: `python -m benchmarks.retiring`."""

import asyncio
import math
import time
from contextlib import suppress
from datetime import timedelta

from benchmarks.contest import answer, say_ready, until_told
from relay.kernel.runner import Budget
from relay.operate.retention import published_events
from relay.postgres.connect import connect_async
from relay.settings import load
from relay.upkeep.mover import Mover
from relay.upkeep.position import Scheduled


async def main() -> None:
    """Take part in a contest; the first word lets it begin, the second ends it between two pages."""
    settings, moved = load(), 0

    def told(rows: int) -> None:
        nonlocal moved
        moved += rows

    events = published_events(settings.relay_schema, timedelta(days=30), settings.relay_retention_to)
    url, stopping = settings.require_database(), asyncio.Event()
    mover = Mover(events, lambda: connect_async(url), Scheduled(settings.relay_schema), told=told, before=time.time())
    say_ready()
    await asyncio.to_thread(until_told)
    running = asyncio.create_task(mover.run(Budget(math.inf, time.monotonic, stopping)))
    with suppress(EOFError):
        await asyncio.to_thread(until_told)
    before = moved
    stopping.set()
    await running
    answer(moved=before)


if __name__ == "__main__":
    asyncio.run(main())
