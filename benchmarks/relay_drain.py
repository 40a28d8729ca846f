"""The relay, until nothing is left or so much is published: `python -m benchmarks.relay_drain TOPIC [MOST]`.

It is built from the settings as `relay run` builds it, and its passes follow one another as they do there while there
is work. What `relay run` does beside that is left out: sleeping, statistics, the log, probes over HTTP.
"""

import asyncio
import sys

from benchmarks.contest import answer, take_part
from relay.cli.parts import outbox_connector
from relay.cli.runners import workers
from relay.kernel.clock import SystemClock
from relay.kernel.command import spare_the_collector
from relay.kernel.runner import Budget, Runner
from relay.settings import load

_PASS_SECONDS = 600.0


async def main(topic: str, most: int | None = None) -> None:
    """Take part in a contest, when all that waits now is drained."""
    settings = load(relay_topic=topic, relay_runners="publish")
    clock = SystemClock()
    (worker,) = workers(settings, outbox_connector(settings), clock, lambda _: None)
    spare_the_collector()
    await emptied(worker.runner, clock)
    take_part()
    answer(events=await emptied(worker.runner, clock, most))
    await worker.runner.close()


async def emptied(runner: Runner, clock: SystemClock, most: int | None = None) -> int:
    """How many events it has published, until a pass finds none or they are enough."""
    published = 0
    while most is None or published < most:
        ends = clock.monotonic() + _PASS_SECONDS
        report = await runner.run_once(Budget(ends, clock.monotonic, asyncio.Event(), most))
        published += report.updated
        if not report.processed:
            break
    return published


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
