"""One runner in one process: never two passes at once, every pass timed, bounded and observed."""

import asyncio
from dataclasses import dataclass

from relay.kernel.clock import Clock
from relay.kernel.observe import Observe, PassFailed, PassFinished, PassSkipped
from relay.kernel.runner import Budget, Report, Runner

# A pass looks at its budget between two units of work; beyond the budget and this it is cancelled.
HARD_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pass ended: with a report, or with the error that it raised."""

    report: Report
    seconds: float
    error: BaseException | None = None


class Worker:
    """Runs the passes of one runner."""

    def __init__(self, runner: Runner, clock: Clock, observe: Observe) -> None:
        self.runner = runner
        self._clock = clock
        self._observe = observe
        self._busy = False

    async def run_once(self, stopping: asyncio.Event, seconds: float, items: int | None = None) -> Outcome:
        """Run one pass, or count it as skipped while the one before is under way."""
        if self._busy:
            self._observe(PassSkipped(self.runner.name))
            return Outcome(Report(skipped=1), 0.0)
        self._busy = True
        try:
            return await self._pass(stopping, seconds, items)
        finally:
            self._busy = False

    async def _pass(self, stopping: asyncio.Event, seconds: float, items: int | None) -> Outcome:
        began = self._clock.monotonic()
        budget = Budget(began + seconds, self._clock.monotonic, stopping, items)
        try:
            async with asyncio.timeout(seconds + HARD_GRACE):
                report = await self.runner.run_once(budget)
        except Exception as error:  # noqa: BLE001 -- a runner's failure is an outcome: logged, paced and reported
            elapsed = self._clock.monotonic() - began
            self._observe(PassFailed(self.runner.name, error, elapsed))
            return Outcome(Report(errors=1), elapsed, error)
        elapsed = self._clock.monotonic() - began
        self._observe(PassFinished(self.runner.name, report, elapsed))
        return Outcome(report, elapsed)
