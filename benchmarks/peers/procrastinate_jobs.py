"""procrastinate, with jobs that do nothing: `python -m benchmarks.peers.procrastinate_jobs JOBS`.

As in `procrastinate_drain`: four workers share the process, so that their statements overlap; finished jobs are
deleted. The clock ends with the last job that has run; what is written of it afterwards is not counted.
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
from benchmarks.peers.procrastinate_drain import CONCURRENCY, POOL, WORKERS

_SECONDS = 60.0


async def main(count: int) -> None:
    """Take part in a contest."""
    # It warns of an app in a main module, which nobody could import. Nobody does.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"], min_size=POOL, max_size=POOL))
    left, all_done = count, asyncio.Event()

    async def work(body: str, attributes: dict[str, str]) -> None:  # noqa: ARG001 -- there is nothing to do with it
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    task = app.task(work, name="work")
    portions = [[event._asdict() for event in events] for events in bulks(count)]
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        spare_the_collector()
        take_part()
        began = time.monotonic()
        for events in portions:
            await task.batch_defer_async(*events)
        stored = time.monotonic()
        # Each ends when nothing is left to be fetched, and its last jobs are finished.
        running = [asyncio.create_task(_work(app)) for _ in range(WORKERS)]
        async with asyncio.timeout(_SECONDS):
            await all_done.wait()
        worked = time.monotonic()
        await asyncio.gather(*running)
    answer(events=count, stored=stored - began, worked=worked - stored)


async def _work(app: App) -> None:
    await app.run_worker_async(
        concurrency=CONCURRENCY, delete_jobs="successful", wait=False, install_signal_handlers=False
    )


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
