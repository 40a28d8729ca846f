"""Jobs at work in a test: one process's runners, on a database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

import psycopg
from psycopg.rows import dict_row

from relay.kernel.clock import Clock, SystemClock
from relay.kernel.runner import Budget, Report
from relay.postgres.connect import connect_async
from relay.upkeep.building import job_loops, job_runners
from relay.upkeep.jobs import Jobs
from relay.upkeep.run import Connect, Run, Surroundings
from relay.upkeep.runner import JobRunner

E = TypeVar("E")
Work = Callable[[Run], Awaitable[None]]
WEEK = timedelta(days=7)


def connecting(url: str) -> Connect:
    """Connects there."""

    async def connect() -> psycopg.AsyncConnection[Any]:
        return await connect_async(url)

    return connect


def job_of(
    work: Work, *, name: str = "ingest", every: str = "1h", cron: str | None = None, timeout: str = "10m"
) -> Jobs:
    """One job."""
    jobs = Jobs()

    async def function(run: Run) -> None:
        await work(run)

    if cron is not None:
        jobs.cron(cron, name=name, timeout=timeout)(function)
    else:
        jobs.every(every, name=name, timeout=timeout)(function)
    return jobs


async def counted(run: Run) -> None:
    """A job that counts three rows."""
    run.count("rows", 3)


class Held:
    """A job that goes on until it is let go."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.let_go = asyncio.Event()
        self.run: Run | None = None
        self.begun = self.cancelled = 0

    async def __call__(self, run: Run) -> None:
        """Begin, and go on."""
        run.count("begun")
        self.run = run
        self.begun += 1
        self.began.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass
class Replica:
    """A process, as far as its jobs can tell."""

    url: str
    jobs: Jobs
    clock: Clock = field(default_factory=SystemClock)
    skew: float = 0.0
    heard: list[object] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    kept: timedelta = WEEK
    connect: Connect | None = None

    def __post_init__(self) -> None:
        self.around = Surroundings(
            connect=self.connect or connecting(self.url), schema="public", observe=self.heard.append
        )
        self.runners: Sequence[JobRunner] = job_runners(
            self.jobs, self.around, history_for=self.kept, clock=self.clock, skew=lambda: self.skew
        )

    @property
    def runner(self) -> JobRunner:
        """That of its only job."""
        (runner,) = self.runners
        return runner

    async def run_once(self, seconds: float = 60.0) -> Report:
        """One pass of its only job."""
        began = self.clock.monotonic()
        return await self.runner.run_once(Budget(began + seconds, self.clock.monotonic, self.stopping))

    async def due(self) -> datetime:
        """Wait until by its own clock a slot has come, and answer with the time."""
        await asyncio.sleep(max(0.0, self.runner._slots.due_in() or 0.0))
        return datetime.now(UTC)

    def of(self, kind: type[E]) -> list[E]:
        """What was heard of this kind."""
        return [event for event in self.heard if isinstance(event, kind)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self.runners:
            await runner.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Its loops, until the end of the block."""
        loops = job_loops(self.runners, self.clock, self.heard.append)
        tasks = [asyncio.create_task(loop.run(self.stopping)) for loop in loops]
        try:
            yield
        finally:
            self.stopping.set()
            for loop in loops:
                loop.wake.set()
            await asyncio.wait(tasks, timeout=5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def runs(url: str) -> list[dict[str, Any]]:
    """All that the history knows, the oldest first."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute("select * from relay_runs order by id").fetchall()


def statuses(url: str) -> list[str]:
    """How they stand."""
    return [run["status"] for run in runs(url)]
