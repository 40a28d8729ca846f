"""The runners of a process's jobs, with what they share: built alike by whatever program runs them."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from relay.kernel.clock import Clock
from relay.kernel.line_redaction import Redaction
from relay.kernel.loop import Loop
from relay.kernel.observe import Observe
from relay.kernel.runner import Pace
from relay.kernel.worker import Worker
from relay.postgres.session import Session
from relay.upkeep.database_clock import DatabaseClock
from relay.upkeep.history import History
from relay.upkeep.jobs import Job
from relay.upkeep.presence import Presence
from relay.upkeep.run import Surroundings
from relay.upkeep.runner import JobRunner, Shared
from relay.upkeep.slots import Slots
from relay.upkeep.statements import CONNECT_SECONDS, STATEMENT_SECONDS, statement


def job_runners(  # noqa: PLR0913 -- each by its name
    jobs: Iterable[Job],
    around: Surroundings,
    *,
    history_for: timedelta,
    clock: Clock,
    pace: Pace | None = None,
    redaction: Redaction | None = None,
    skew: Callable[[], float] = lambda: 0.0,
    slots: type[Slots] = Slots,
) -> list[JobRunner]:
    """A runner for each job, all over one session for slots and history.

    `redaction` is asked about what the history keeps of errors; `skew` is by how much the database's clock is moved;
    `slots` is SlotNow where each is to run at once.
    """
    jobs = list(jobs)
    session = Session(
        around.connect, statement, around.schema, skew, STATEMENT_SECONDS, connect_seconds=CONNECT_SECONDS
    )
    shared = Shared(
        around=around,
        history=History(session, around.observe, history_for, redaction or Redaction(), clock.monotonic),
        presence=Presence(session, [job.name for job in jobs], clock.monotonic),
        clock=clock,
        pace=pace or Pace(),
    )
    database = DatabaseClock(clock.monotonic)
    return [JobRunner(job, slots(job, session, database), shared) for job in jobs]


def job_workers(runners: Iterable[JobRunner], clock: Clock, observe: Observe) -> list[Worker]:
    """A worker for each: its passes are bounded by the job's own timeout."""
    return [Worker(runner, clock, observe, seconds=runner.seconds) for runner in runners]


def job_loops(runners: Sequence[JobRunner], clock: Clock, observe: Observe) -> list[Loop]:
    """A loop for each, which sleeps from slot to slot. No error of a job, or of its schema, is final: others go on."""
    workers = job_workers(runners, clock, observe)
    return [Loop(worker, clock, runner.seconds, rest=runner) for worker, runner in zip(workers, runners, strict=True)]
