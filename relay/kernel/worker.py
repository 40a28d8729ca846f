"""One runner in one process: never two passes at once, every pass timed, bounded and observed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from relay.kernel.clock import Clock
from relay.kernel.observe import CloseFailed, Observe, PassFailed, PassFinished, PassSkipped
from relay.kernel.runner import Budget, Report, Runner

# A pass looks at its budget between two units of work, so it may end one unit late; beyond that it is cancelled.
GRACE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pass ended: with a report, or with the error that it raised."""

    report: Report
    seconds: float
    error: BaseException | None = None


class Worker:
    """Runs the passes of one runner, each of up to `items`. No unit of work takes longer than `grace`.

    A pass gets `seconds`, or where none are given as many as whoever asks for it says.
    """

    def __init__(  # noqa: PLR0913 -- those behind `observe` have defaults that most workers keep
        self,
        runner: Runner,
        clock: Clock,
        observe: Observe,
        grace: float = GRACE_SECONDS,
        items: int | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        self.runner = runner
        self._clock = clock
        self._observe = observe
        self._grace = grace
        self._items = items
        self._seconds = seconds
        self._busy = False

    async def run_once(self, stopping: asyncio.Event, seconds: float, most: float = inf) -> Outcome:
        """Run one pass, or count it as skipped while the one before is under way.

        It gets `seconds`, or what the worker has for itself instead, and never more than `most`.
        """
        if self._busy:
            self._observe(PassSkipped(self.runner.name))
            return Outcome(Report(skipped=1), 0.0)
        self._busy = True
        try:
            return await self._pass(stopping, min(most, seconds if self._seconds is None else self._seconds))
        finally:
            self._busy = False

    async def close(self, seconds: float) -> bool:
        """Close the runner. False when it is still busy, or did not let go in time; what it raises is observed."""
        if self._busy:
            return False
        closing = asyncio.create_task(self.runner.close())
        await asyncio.wait({closing}, timeout=seconds)
        if not closing.done():
            closing.cancel()
            self._observe(CloseFailed(self.runner.name, TimeoutError(f"not closed within {seconds:g} s")))
            return False
        error = asyncio.CancelledError() if closing.cancelled() else closing.exception()
        if error is not None:
            self._observe(CloseFailed(self.runner.name, error))
        return True

    async def _pass(self, stopping: asyncio.Event, seconds: float) -> Outcome:
        began = self._clock.monotonic()
        budget = Budget(began + seconds, self._clock.monotonic, stopping, self._items)
        limit = asyncio.timeout(seconds + self._grace)
        try:
            async with limit:
                report = await self.runner.run_once(budget)
        except BaseException as error:
            if not _is_the_runners(error):
                raise
            failure = error
            if limit.expired():
                failure = TimeoutError(f"cancelled {self._grace:g} s after its budget of {seconds:g} s was spent")
                failure.__cause__ = error
            elapsed = self._clock.monotonic() - began
            self._observe(PassFailed(self.runner.name, failure, elapsed))
            return Outcome(Report(errors=1), elapsed, failure)
        elapsed = self._clock.monotonic() - began
        self._observe(PassFinished(self.runner.name, report, elapsed))
        return Outcome(report, elapsed)


async def close_all(workers: Sequence[Worker], clock: Clock, seconds: float) -> list[Worker]:
    """Close them one after the other, all in this time; answer with those that are open still.

    Where the time is spent, one that closes at once is closed all the same.
    """
    deadline = clock.monotonic() + seconds
    return [worker for worker in workers if not await worker.close(max(0.0, deadline - clock.monotonic()))]


def _is_the_runners(error: BaseException) -> bool:
    """Whether the runner failed, whatever it raised; else somebody cancels this task, or Python ends the process."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt | GeneratorExit)
