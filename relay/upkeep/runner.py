"""One job as a runner of the kernel: each pass looks whether a slot is due, and runs it."""

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import psycopg

from relay.errors import ConfigurationError, SchemaError
from relay.kernel.clock import Clock
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.upkeep.events import RunBegan, RunDeaf, RunEnded, RunSkipped, Status, runner_of
from relay.upkeep.execution import Ending, Execution
from relay.upkeep.history import History
from relay.upkeep.holding import Holding
from relay.upkeep.jobs import Job
from relay.upkeep.presence import Presence
from relay.upkeep.run import Run, Surroundings
from relay.upkeep.slots import Slots

# What a pass may take beside the job itself: a slot, a lock and a row, each waited for as long as statements are, over
# two connections, for which two silent hosts may be tried first. A job has its own time whatever they took.
SETUP_SECONDS: Final = 60.0
# After a failure the next slot is missed by so much at most.
LATE_SECONDS: Final = 5.0
# Whoever rests looks at the clock so often: other jobs' answers correct it.
_NAP_SECONDS: Final = 600.0
# Passes that neither took a slot nor found it taken follow each other after so long, doubling to a second.
_VAIN_SECONDS: Final = 0.001
_MOST_VAIN: Final = 10


@dataclass(frozen=True, slots=True)
class Shared:
    """What the jobs of a process have in common."""

    around: Surroundings
    history: History
    presence: Presence
    clock: Clock
    pace: Pace


class JobRunner:
    """Runs one job, each slot once over all processes; as the loop's rest it sleeps until the next one."""

    def __init__(self, job: Job, slots: Slots, shared: Shared) -> None:
        self.name = runner_of(job.name)
        self.pace = shared.pace
        self.seconds = job.timeout + SETUP_SECONDS
        """How long a pass may take, whatever others may."""
        self._job = job
        self._slots = slots
        self._shared = shared
        self._vain = 0

    async def run_once(self, budget: Budget) -> Report:
        """Run the slot that is due, where it is ours."""
        if budget.stopping.is_set():
            return Report()
        try:
            slot = await self._slots.take()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege) as error:
            raise await self._unfit(error) from error
        # The database has just answered.
        await self._shared.history.settle()
        if slot is None:
            return Report(next=self._next(), due=False)
        self._vain = 0
        worker = f"{self._job.name}:{socket.gethostname()}:{os.getpid()}:{uuid4()}"
        around = self._shared.around
        holding = await Holding.take(around.connect, around.schema, self._job.name, self._shared.clock)
        self._slots.use(slot)
        if holding is None:
            around.observe(RunSkipped(self._job.name, slot, worker))
            return Report(skipped=1)
        clock = self._shared.clock
        run = Run(
            job=self._job.name,
            slot=slot,
            worker=worker,
            around=around,
            stopping=budget.stopping,
            clock=clock,
            deadline=min(clock.monotonic() + self._job.timeout, budget.deadline),
        )
        return await self._run(run, holding, budget)

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: int) -> None:  # noqa: ARG002 -- a slot is a slot
        """Sleep until the next slot, by the database's clock as far as it is known."""
        due = self._slots.due_in()
        if due is None:
            due = seconds
        elif due <= 0:
            due = _VAIN_SECONDS * 2 ** min(self._vain, _MOST_VAIN)
            self._vain += 1
        else:
            self._vain = 0
        await self._shared.presence.rests(self._job.name, due)
        while due > 0 and not await self._shared.clock.wait(wake, min(due, _NAP_SECONDS)):
            due = (self._slots.due_in() or 0.0) if due > _NAP_SECONDS else 0.0
        self._shared.presence.works(self._job.name)

    def after_failure(self, seconds: float) -> float:
        """As the pace asks for, but never far beyond the next slot."""
        due = self._slots.next_in()
        return seconds if due is None else min(seconds, due + LATE_SECONDS)

    async def close(self) -> None:
        """Need nothing any more."""
        await self._shared.presence.ends(self._job.name)

    async def _run(self, run: Run, holding: Holding, budget: Budget) -> Report:
        history, observe = self._shared.history, self._shared.around.observe
        try:
            found = await history.begin(run)
            observe(RunBegan(run.job, run.slot, run.worker))
            began = budget.monotonic()
            execution = Execution(
                lambda: self._job.work(run), holding.lost(), lambda why: observe(RunDeaf(run.job, run.worker, why))
            )
            ending = await execution.run(min(self._job.timeout, budget.deadline - began))
            ended = _ended(run, ending, budget.monotonic() - began)
            try:
                written = await history.end(found, ended, hurry=execution.interrupted)
            finally:
                observe(ended)
        finally:
            await holding.release()
        if execution.interrupted:
            raise asyncio.CancelledError
        if written:
            await history.prune(run)
        return Report(processed=1, errors=ended.errors, next=self._next())

    def _next(self) -> Next:
        # The next slot may come tomorrow: until then a run that has ended would stand as running.
        return Next.BACK_OFF if self._shared.history.owes else Next.IDLE

    async def _unfit(self, error: psycopg.Error) -> ConfigurationError:
        schema, setting = self._shared.around.schema, self._shared.around.schema_setting
        if isinstance(error, psycopg.errors.UndefinedTable):
            if not await self._slots.has_schema(schema):
                return SchemaError(
                    f"the database has no schema {schema!r}, which {setting} names; correct the name there, or in "
                    "DATABASE_URL that of the database"
                )
            return SchemaError(
                f"schema {schema!r}, which {setting} names, has no table relay_schedule: jobs need version 6 of the "
                "outbox, or version 2 of the inbox; name another schema there, or bring this one up with: "
                "python -m relay migrate, or python -m consumers migrate"
            )
        return ConfigurationError(
            f"jobs may not write in schema {schema!r}: {error.diag.message_primary}; the owner of relay_schedule and "
            "relay_runs gives the role select, insert, update and delete on both, as python -m relay grants does"
        )


def _ended(run: Run, ending: Ending, seconds: float) -> RunEnded:
    # What ended it is one error more than those that did not.
    errors = run.errors + (ending.status is not Status.DONE)
    return RunEnded(
        run.job,
        run.slot,
        run.worker,
        ending.status,
        dict(run.counters),
        errors,
        seconds,
        ending.error,
        run.last_fault,
    )
