"""A schedule and a history in memory, by a clock that jumps; what is true of Postgres is tested there."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

from relay.kernel.line_redaction import Redaction
from relay.kernel.loop import Loop
from relay.kernel.runner import Budget, Pace, Report
from relay.kernel.worker import Worker
from relay.upkeep.database_clock import DatabaseClock
from relay.upkeep.history import History
from relay.upkeep.jobs import Jobs
from relay.upkeep.presence import Presence
from relay.upkeep.run import Run, Surroundings
from relay.upkeep.runner import JobRunner, Shared
from relay.upkeep.slots import Slots
from tests.unit.kernel.fakes import FakeClock

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Database:
    """What the statements do, all at once; its clock is at `start` as the test begins, and runs at `rate`."""

    start: datetime = NEW_YEAR
    rate: float = 1.0
    away: bool = False
    forgetful: bool = False
    """Whether the next answer that gives a slot away is lost."""
    slow: dict[str, float] = field(default_factory=dict)
    """Statements that take so long."""
    slots: dict[str, datetime | None] = field(default_factory=dict)
    takers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    ended: list[Mapping[str, object]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._began = asyncio.get_running_loop().time()

    @property
    def now(self) -> datetime:
        """The time there."""
        return self.start + timedelta(seconds=self.rate * (asyncio.get_running_loop().time() - self._began))

    def times(self, name: str) -> list[float]:
        """How many seconds after the beginning this statement was asked."""
        return [round(at - self._began, 3) for said, at in self.asked if said == name]


class Session:
    """Says statements to it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.rested = self.closed = 0

    async def ask(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        database = self.database
        database.asked.append((name, asyncio.get_running_loop().time()))
        await asyncio.sleep(database.slow.get(name, 0.0))
        if database.away:
            raise OSError("away")
        match name:
            case "slot_take":
                answer = self._take(**values)
                if answer[0] and database.forgetful:
                    database.forgetful = False
                    raise OSError("reset before the answer came")
                return [answer]
            case "run_begin":
                return [(1,)]
            case "run_end":
                database.ended.append(values)
                return [(1,)]
            case "runs_prune":
                return [(0,)]
            case _:
                raise AssertionError(name)

    def _take(
        self, *, name: str, slot: datetime | None, until: datetime, at_once: bool, by: str
    ) -> tuple[bool, float, float | None, str | None]:
        database, now = self.database, self.database.now
        last = database.slots.get(name)
        taken = name in database.slots and slot is not None and (last is None or last < slot) and slot <= now < until
        if name not in database.slots:
            last = database.slots[name] = None if at_once else now
        taken_by = database.takers.get(name)
        if taken:
            database.slots[name], database.takers[name] = slot, by
        return taken, now.timestamp(), None if last is None else last.timestamp(), taken_by

    async def rest(self) -> None:
        """Count it."""
        self.rested += 1

    async def close(self) -> None:
        """Count it."""
        self.closed += 1


class FakeHolding:
    """The lock of a job, as the database in memory knows it."""

    def __init__(self, database: Database, job: str) -> None:
        self.database, self.job = database, job
        self.gone: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def lost(self) -> BaseException:
        """When the test says so."""
        return await asyncio.shield(self.gone)

    async def release(self) -> None:
        """Let go."""
        self.database.held.discard(self.job)


class Process:
    """Some jobs at work, as a process has them."""

    def __init__(self, database: Database, jobs: Jobs) -> None:
        self.heard: list[object] = []
        self.stopping = asyncio.Event()
        self.clock = FakeClock()
        self.session: Any = cast("Any", Session(database))
        self.holdings: list[FakeHolding] = []
        self.database = database
        around = Surroundings(connect=self._connect, schema="public", observe=self.heard.append)
        shared = Shared(
            around=around,
            history=History(self.session, self.heard.append, timedelta(7), Redaction(), self.clock.monotonic),
            presence=Presence(self.session, [job.name for job in jobs], self.clock.monotonic),
            clock=self.clock,
            pace=Pace(),
        )
        clock = DatabaseClock(self.clock.monotonic)
        self.runners = [JobRunner(job, Slots(job, self.session, clock), shared) for job in jobs]

    async def _connect(self) -> Any:
        raise AssertionError

    async def take(self, _connect: object, _schema: str, job: str, _clock: object) -> FakeHolding | None:
        """What `Holding.take` does."""
        if self.database.away:
            raise OSError("away")
        if job in self.database.held:
            return None
        self.database.held.add(job)
        self.holdings.append(FakeHolding(self.database, job))
        return self.holdings[-1]

    async def run_once(self, seconds: float = 600.0) -> Report:
        """One pass of its first job."""
        budget = Budget(self.clock.monotonic() + seconds, self.clock.monotonic, self.stopping)
        return await self.runners[0].run_once(budget)

    def of(self, kind: type[Any]) -> Sequence[Any]:
        """What was heard of this kind."""
        return [event for event in self.heard if isinstance(event, kind)]

    def loops(self) -> list[Loop]:
        """One for each job, without jitter."""
        return [
            Loop(
                Worker(runner, self.clock, self.heard.append, seconds=runner.seconds),
                self.clock,
                60,
                lambda _: 0.0,
                rest=runner,
            )
            for runner in self.runners
        ]

    async def __aenter__(self) -> Self:
        """Begin its loops."""
        self._loops = self.loops()
        self._tasks = [asyncio.create_task(loop.run(self.stopping)) for loop in self._loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop them."""
        self.stopping.set()
        for loop in self._loops:
            loop.wake.set()
        await asyncio.gather(*self._tasks)


class Counting:
    """A job that counts its runs by slot, and takes so long."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.slots: Counter[datetime] = Counter()
        self.at: list[float] = []

    async def __call__(self, run: Run) -> None:
        """Count it."""
        self.slots[run.slot] += 1
        self.at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)


def jobs_of(work: Counting, *, every: str | None = None, cron: str | None = None, timezone: str = "UTC") -> Jobs:
    """One job, named work."""
    jobs = Jobs()

    async def function(run: Run) -> None:
        await work(run)

    decorate = jobs.every(every, name="work") if every else jobs.cron(cron or "", timezone=timezone, name="work")
    decorate(function)
    return jobs
