"""procrastinate: a task queue in Python. `python -m benchmarks.peers.procrastinate_drain TOPIC EVENTS`.

A worker fetches one job with each statement and finishes it with another. Several workers share the process, so that
their statements overlap; finished jobs are deleted.
"""

import asyncio
import logging
import os
import sys
import time

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.contest import answer, take_part
from benchmarks.peers.collector import spare_the_collector
from benchmarks.peers.events import bulks
from benchmarks.peers.publisher import Publisher

WORKERS = 4
CONCURRENCY = 30
POOL = 60


async def main(topic: str, count: int) -> None:
    """Take part in a contest."""
    # It warns of an app in a main module, which nobody could import. Nobody does.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"], min_size=POOL, max_size=POOL))
    publisher = Publisher(topic, count)

    async def publish(body: str, attributes: dict[str, str]) -> None:
        await publisher.publish(body.encode(), attributes)

    task = app.task(publish, name="publish")
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for events in bulks(count):
            await task.batch_defer_async(*(event._asdict() for event in events))
        spare_the_collector()
        take_part()
        began = time.monotonic()
        running = [asyncio.create_task(_work(app)) for _ in range(WORKERS)]
        seconds = await publisher.everything() - began
        for worker in running:
            worker.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    answer(events=publisher.acknowledged, seconds=seconds)


async def _work(app: App) -> None:
    await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
