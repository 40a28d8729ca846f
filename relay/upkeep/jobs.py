"""What a service has done now and then, each once over all of its processes.

jobs = Jobs()

@jobs.every("2m")
async def ingest(run: Run) -> None: ...

@jobs.cron("17 3 * * *", timezone="Europe/Berlin")
async def clean_up(run: Run) -> None: ...

RELAY_APP=shop.upkeep:jobs names them to `relay run`, `relay tick` and `consumers run`.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from inspect import iscoroutinefunction, signature
from typing import Final, TypeVar

from relay.errors import ConfigurationError
from relay.kernel.code_duration import Duration, read, shown
from relay.upkeep.http import HttpCall, HttpJob
from relay.upkeep.run import Run
from relay.upkeep.schedule import SHORTEST, Cron, Every, Schedule

Work = Callable[[Run], Awaitable[None]]
W = TypeVar("W", bound=Work)

OURS: Final = "relay."
# A call that is not answered in time has so long to say so before its job is cancelled.
_CALL_ENDS_SECONDS: Final = 5.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Job:
    """One of them."""

    name: str
    schedule: Schedule
    work: Work
    timeout: float
    """After so many seconds it is cancelled."""


class Jobs:
    """Those of a service. What is wrong with one is said where it is written, by ConfigurationError."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def every(self, interval: Duration, *, name: str | None = None, timeout: Duration = "10m") -> Callable[[W], W]:
        """Run the function every so often, counted from one moment for all; a second is the least."""
        if callable(interval):
            raise ConfigurationError('@jobs.every needs an interval; write it like @jobs.every("2m")')
        return self._decorator(lambda: Every.of(interval), name, timeout)

    def cron(
        self, expression: str, *, timezone: str = "UTC", name: str | None = None, timeout: Duration = "10m"
    ) -> Callable[[W], W]:
        """Run the function at the times of a cron expression: minute, hour, day, month, weekday."""
        if callable(expression):
            raise ConfigurationError('@jobs.cron needs an expression; write it like @jobs.cron("17 3 * * *")')
        return self._decorator(lambda: Cron.of(expression, timezone), name, timeout)

    def http(  # noqa: PLR0913 -- each by its name
        self,
        path: str,
        *,
        name: str,
        every: Duration | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        method: str = "POST",
        timeout: Duration = "30s",
    ) -> None:
        """Call WORKER_API_BASE_URL + path at each slot, with WORKER_API_SERVICE_TOKEN as x-service-token."""
        if (every is None) == (cron is None):
            raise ConfigurationError(f"job {shown(name)} needs one of every= and cron=")

        def schedule() -> Schedule:
            return Every.of(every) if every is not None else Cron.of(cron, timezone)

        try:
            call = HttpCall.of(method, path)
        except ValueError as fault:
            raise ConfigurationError(f"job {shown(name)}: {fault}") from None
        self._add(schedule, HttpJob(call, timeout), name, timeout, beyond=_CALL_ENDS_SECONDS)

    def _decorator(self, schedule: Callable[[], Schedule], name: str | None, timeout: Duration) -> Callable[[W], W]:
        def added(function: W) -> W:
            called = name if name is not None else getattr(function, "__name__", "")
            # Not narrowed by it: what is decorated stays what it is.
            is_async: bool = iscoroutinefunction(function)
            if not is_async:
                raise ConfigurationError(
                    f"job {shown(called)} is no `async def`; write one, with asyncio.to_thread for what blocks: a run "
                    "that has lost its lock must be stopped, and a thread cannot be"
                )
            if not _takes_a_run(function):
                raise ConfigurationError(
                    f"job {shown(called)} does not take the run that it is called with; write async def job(run: Run)"
                )
            self._add(schedule, function, called, timeout)
            return function

        return added

    def _add(
        self, schedule: Callable[[], Schedule], work: Work, name: str, timeout: Duration, *, beyond: float = 0.0
    ) -> None:
        if not _is_name(name):
            raise ConfigurationError(
                f"a job is named {shown(name)}; give it a name of up to 100 letters, digits, _, - and dots that does "
                f"not begin with {OURS}"
            )
        if name in self._jobs:
            raise ConfigurationError(f"two jobs are named {name!r}; give one of them another name=")
        try:
            self._jobs[name] = Job(name, schedule(), work, _seconds(timeout) + beyond)
        except ValueError as fault:
            raise ConfigurationError(f"job {name!r}: {fault}") from None


def _takes_a_run(function: Callable[..., object]) -> bool:
    """Whether it can be called with a run and nothing else, as far as its signature tells."""
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # it tells nothing
        return True
    return True


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and not name.startswith(OURS)


def _seconds(timeout: Duration) -> float:
    found = read(timeout)
    if found < SHORTEST:
        raise ValueError(f"timeout is {shown(timeout)}; give a second or more")
    return found.total_seconds()
