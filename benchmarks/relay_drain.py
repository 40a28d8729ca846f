"""The relay as `relay run` builds it, until nothing is left: `python -m benchmarks.relay_drain TOPIC`."""

import asyncio
import sys
import time

from benchmarks.contest import answer, take_part
from relay.cli.parts import outbox_connector, spare_the_collector
from relay.cli.runners import workers
from relay.kernel.clock import SystemClock
from relay.kernel.runner import Budget
from relay.settings import load


async def main(topic: str) -> None:
    """Take part in a contest."""
    settings = load(relay_topic=topic)
    clock = SystemClock()
    (worker,) = workers(settings, outbox_connector(settings), clock, lambda _: None)
    spare_the_collector()
    take_part()
    began = time.monotonic()
    published = 0
    while True:
        report = await worker.runner.run_once(Budget(clock.monotonic() + 600, clock.monotonic, asyncio.Event()))
        published += report.updated
        if not report.processed:
            break
    answer(events=published, seconds=time.monotonic() - began)
    await worker.runner.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
