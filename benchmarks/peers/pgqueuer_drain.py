"""PgQueuer: a job queue in Python. `python -m benchmarks.peers.pgqueuer_drain TOPIC EVENTS`.

One manager on a connection of its own, batches of 500, its own settings for vacuum, durable tables.
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
from benchmarks.peers.publisher import Publisher

ENTRYPOINT = "publish"
BATCH = 500


async def main(topic: str, count: int) -> None:
    """Take part in a contest."""
    storing, working = [await asyncpg.connect(os.environ["DATABASE_URL"]) for _ in range(2)]
    queries = Queries(AsyncpgDriver(storing))
    await queries.install()
    await queries.optimize_autovacuum()
    for events in bulks(count):
        await queries.enqueue(
            [ENTRYPOINT] * len(events),
            [event.body.encode() for event in events],
            [0] * len(events),
            headers=[event.attributes for event in events],
        )
    await storing.close()
    publisher = Publisher(topic, count)

    async def publish(job: Job) -> None:
        await publisher.publish(job.payload, job.headers)

    queue = PgQueuer.from_asyncpg_connection(working)
    queue.entrypoint(ENTRYPOINT)(publish)
    spare_the_collector()
    take_part()
    began = time.monotonic()
    running = asyncio.create_task(queue.run(batch_size=BATCH))
    seconds = await publisher.everything() - began
    queue.shutdown.set()
    await running
    answer(events=publisher.acknowledged, seconds=seconds)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
