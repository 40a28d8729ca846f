"""A consumer with an inbox: `python -m benchmarks.inbox_consumer KIND MANY CONCURRENCY`.

The handler of KIND `nothing` does nothing; that of `complete` inserts a row, and completes its delivery in the same
transaction. It is what `consumers run` runs, without its log, and with deliveries that are in memory. The clock runs
from the first that is handed over to the last that is completed.
"""

import asyncio
import os
import sys
import time
from dataclasses import replace

from benchmarks.consuming import Nowhere
from benchmarks.contest import answer, take_part
from benchmarks.memory_source import EVENT_TYPE, MemorySource, deliveries
from benchmarks.sections.inbox import COMPLETE, NOTHING
from consumers import Consumer, Context, Received
from consumers.events import DeliverySettled, Fate
from consumers.inbox.building import Place, build
from consumers.outside import Outside
from consumers.runtime import Runtime
from consumers.sources.source import Demand, Take
from relay.kernel.command import spare_the_collector

# Those of INBOX_LEASE_MS, INBOX_HEARTBEAT_MS, INBOX_POLL_MS.
_PLACE = Place(url="", schema="public", lease_seconds=60.0, heartbeat_seconds=15.0, poll_seconds=0.5, connections=0)
_SECONDS = 120.0


class Timed(MemorySource):
    """Knows when it began."""

    began = 0.0

    async def run(self, take: Take, demand: Demand) -> None:
        """Hand over, from now on."""
        self.began = time.perf_counter()
        await super().run(take, demand)


class Done:
    """Set with the last delivery."""

    def __init__(self, many: int) -> None:
        self._left = many
        self.all = asyncio.Event()
        self.at = 0.0

    def __call__(self, event: object) -> None:
        """Count what is done."""
        if isinstance(event, DeliverySettled) and event.fate is Fate.DONE:
            self._left -= 1
            if not self._left:
                self.at = time.perf_counter()
                self.all.set()


async def main(kind: str, many: int, concurrency: int) -> None:
    """Take part in a contest."""
    consumer, source, done = _consumer(kind, concurrency), Timed(deliveries(many)), Done(many)
    built = build(
        replace(_PLACE, url=os.environ["DATABASE_URL"], connections=concurrency),
        consumer=consumer.name,
        handlers=consumer.handlers,
        upstream=source,
        dead_letters=Nowhere(),
        shard_key=consumer.shard_by,
        confirmers=consumer.confirmers,
        observe=done,
    )
    outside = Outside(
        source=built.source, dedup=built.dedup, effects=built.effects, dead_letters=Nowhere(), observe=done
    )
    spare_the_collector()
    take_part()
    async with asyncio.timeout(_SECONDS):
        await Runtime(consumer, outside).run(done.all, 5.0)
    answer(events=many, seconds=done.at - source.began)


def _consumer(kind: str, concurrency: int) -> Consumer:
    consumer = Consumer("bench", dedup="inbox", concurrency=concurrency)
    consumer.on(EVENT_TYPE)({NOTHING: _nothing, COMPLETE: _complete}[kind])
    return consumer


async def _nothing(event: Received[object], ctx: Context) -> None:
    """Nothing."""


async def _complete(event: Received[object], ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects (event_id) values (%s)", [event.event_id])
        await ctx.complete(connection)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
