"""PgQueuer, with jobs that do nothing: `python -m benchmarks.peers.pgqueuer_jobs JOBS`.

As in `pgqueuer_drain`: one manager on a connection of its own, batches of 500, its own settings for vacuum, durable
tables. The clock ends with the last job that has run; what is written of it afterwards is not counted.
"""

import asyncio
import os
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.contest import answer, take_part
from benchmarks.peers.collector import spare_the_collector
from benchmarks.peers.events import bulks
from benchmarks.peers.pgqueuer_drain import BATCH, ENTRYPOINT

_SECONDS = 60.0


async def main(count: int) -> None:
    """Take part in a contest."""
    storing, working = [await asyncpg.connect(os.environ["DATABASE_URL"]) for _ in range(2)]
    queries = Queries(AsyncpgDriver(storing))
    await queries.install()
    await queries.optimize_autovacuum()
    portions = [
        ([event.body.encode() for event in events], [event.attributes for event in events]) for events in bulks(count)
    ]
    left, all_done = count, asyncio.Event()

    async def work(job: Job) -> None:  # noqa: ARG001 -- there is nothing to do with it
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    queue = PgQueuer.from_asyncpg_connection(working)
    queue.entrypoint(ENTRYPOINT)(work)
    spare_the_collector()
    take_part()
    began = time.monotonic()
    for bodies, headers in portions:
        await queries.enqueue([ENTRYPOINT] * len(bodies), bodies, [0] * len(bodies), headers=headers)
    stored = time.monotonic()
    running = asyncio.create_task(queue.run(batch_size=BATCH))
    async with asyncio.timeout(_SECONDS):
        await all_done.wait()
    worked = time.monotonic()
    queue.shutdown.set()
    await running
    await storing.close()
    answer(events=count, stored=stored - began, worked=worked - stored)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
