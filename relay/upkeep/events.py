"""What happens to jobs: logs, metrics and tests listen to the same values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

_RUNNER: Final = "job:"


def runner_of(job: str) -> str:
    """How logs and reports call the runner of a job."""
    return f"{_RUNNER}{job}"


def is_of_job(runner: str) -> bool:
    """Whether a runner of this name is that of a job."""
    return runner.startswith(_RUNNER)


class Status(Enum):
    """How a run stands, as `relay_runs` has it."""

    RUNNING = "running"
    DONE = "done"  # with errors, perhaps, that did not end it
    FAILED = "failed"  # by what it raised
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"  # its process was asked to stop, and did not wait for its end
    LOST = "lost"  # the connection that held its lock: another one may have begun since
    KILLED = "killed"  # its process ended without a word; told by whoever runs next


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A slot is taken, the lock is held, and the job runs."""

    job: str
    slot: datetime
    worker: str


@dataclass(frozen=True, slots=True)
class RunFault:
    """Something in a run went wrong, and it goes on: a source that did not answer."""

    job: str
    worker: str
    what: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class RunEnded:
    """It has ended, one way or the other."""

    job: str
    slot: datetime
    worker: str
    status: Status
    counters: Mapping[str, int]
    errors: int
    seconds: float
    error: BaseException | None = None
    last_fault: RunFault | None = None
    """The last of those that did not end it; the history keeps it where nothing did."""


@dataclass(frozen=True, slots=True)
class RunDeaf:
    """It was cancelled some seconds ago, and goes on; until it ends, no other run of it begins in this process."""

    job: str
    worker: str
    status: Status
    """What it will have ended as."""


@dataclass(frozen=True, slots=True)
class RunSkipped:
    """The slot was taken while the run before holds the lock still, here or elsewhere: it is not made up for."""

    job: str
    slot: datetime
    worker: str


@dataclass(frozen=True, slots=True)
class RunUnrecorded:
    """The history could not be written; the job itself was not touched by that."""

    job: str
    worker: str
    error: BaseException


# All of them, for whoever listens to these among others.
JobEvent = RunBegan | RunEnded | RunFault | RunDeaf | RunSkipped | RunUnrecorded
