"""Jobs at work in a test: one process's runners, on a database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from relay.kernel.clock import Clock, SystemClock
from relay.kernel.runner import Budget, Report
from relay.postgres.connect import connect_async
from relay.upkeep.building import job_loops, job_runners
from relay.upkeep.jobs import Jobs
from relay.upkeep.run import Surroundings
from relay.upkeep.runner import JobRunner

E = TypeVar("E")
WEEK = timedelta(days=7)


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
    connect: Callable[[], Awaitable[psycopg.AsyncConnection[Any]]] | None = None

    def __post_init__(self) -> None:
        url = self.url

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await connect_async(url)

        around = Surroundings(connect=self.connect or connect, schema="public", observe=self.heard.append)
        self.around = around
        self.runners: Sequence[JobRunner] = job_runners(
            self.jobs, around, history_for=self.kept, clock=self.clock, skew=lambda: self.skew
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

    def of(self, kind: type[E]) -> list[E]:
        """What was heard of this kind."""
        return [event for event in self.heard if isinstance(event, kind)]

    async def close(self) -> None:
        """End what it holds."""
        for runner in self.runners:
            await runner.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Replica"]:
        """Its loops, until the end of the block."""
        loops = job_loops(self.runners, self.clock, self.heard.append)
        tasks = [asyncio.create_task(loop.run(self.stopping)) for loop in loops]
        try:
            yield self
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
