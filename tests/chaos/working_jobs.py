"""A process with one job, `python -m relay run` with nothing else to do: it writes down when it worked."""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from relay.kernel.clock import SystemClock
from relay.kernel.observe import Observe
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import supervise
from relay.postgres.connect import connect_async
from relay.upkeep import holding
from relay.upkeep.building import job_loops, job_runners
from relay.upkeep.events import RunEnded
from relay.upkeep.jobs import Jobs
from relay.upkeep.run import Run, Surroundings

JOB = "work"


@dataclass(frozen=True, slots=True)
class Line:
    """One word of a process: when it began or ended to work, for which slot, and how its run ended."""

    what: str
    pid: int
    at: float
    slot: float
    status: str = ""


def read(path: Path) -> list[Line]:
    """All of them, by time; of a line that is being written there is nothing yet."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return sorted((Line(**json.loads(line)) for line in whole.splitlines()), key=lambda line: line.at)


def main() -> int:
    """Run it until SIGTERM; its words are the interval, how long the work takes, the time between two pings, a file."""
    interval, seconds, ping, path = sys.argv[1:]
    holding.PING_SECONDS = float(ping)  # type: ignore[misc]
    jobs = Jobs()
    say = partial(_say, Path(path))

    @jobs.every(interval, name=JOB)
    async def work(run: Run) -> None:
        say("began", run.slot.timestamp())
        try:
            await asyncio.sleep(float(seconds))
        finally:
            say("ended", run.slot.timestamp())

    def observe(event: object) -> None:
        if isinstance(event, RunEnded):
            say("run", event.slot.timestamp(), event.status.value)

    asyncio.run(_until_told(jobs, observe))
    return 0


async def _until_told(jobs: Jobs, observe: Observe) -> None:
    url, clock, shutdown = os.environ["DATABASE_URL"], SystemClock(), Shutdown()
    around = Surroundings(connect=lambda: connect_async(url), schema="public", observe=observe)
    runners = job_runners(jobs, around, history_for=timedelta(days=7), clock=clock)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.request, "SIGTERM")
    await supervise(job_loops(runners, clock, observe), shutdown, clock, 5.0, observe)


def _say(path: Path, what: str, slot: float, status: str = "") -> None:
    line = json.dumps(asdict(Line(what, os.getpid(), time.time(), slot, status)))
    # Appended whole: several processes write there.
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
