"""The loop around one worker: pass, wait as the pass asks for, pass again, until the process stops."""

import asyncio
from typing import assert_never

from relay.kernel.backoff import Backoff, Jitter, uniform
from relay.kernel.clock import Clock
from relay.kernel.rest import ByTheClock, Rest
from relay.kernel.runner import Next
from relay.kernel.worker import Outcome, Worker


class Loop:
    """Calls a worker at its runner's pace; a wake-up cuts any wait short. `rest` is how it waits with nothing to do.

    An error of a `final` kind ends the loop while no pass has ended well yet: no repetition will mend it.
    """

    def __init__(  # noqa: PLR0913 -- those by name have defaults that most loops keep
        self,
        worker: Worker,
        clock: Clock,
        pass_seconds: float,
        jitter: Jitter = uniform,
        *,
        final: tuple[type[Exception], ...] = (),
        rest: Rest | None = None,
    ) -> None:
        self.worker = worker
        self.wake = asyncio.Event()
        self._clock = clock
        self._pass_seconds = pass_seconds
        self._pace = worker.runner.pace
        self._idle = Backoff(self._pace.idle, jitter)
        self._error = Backoff(self._pace.error, jitter)
        self._final = final
        self._rest = rest or ByTheClock(clock)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run passes until `stopping` is set; whoever sets it also sets `wake`. Raises errors that are final."""
        try:
            while not stopping.is_set():
                outcome = await self.worker.run_once(stopping, self._pass_seconds)
                self._judge(outcome)
                # A pass may end without ever having waited: signals and the other loops get their turn here.
                await asyncio.sleep(0)
                await self._pause(outcome)
                # No await since the wait: a wake-up lost here comes before the next pass, which sees what it was about.
                self.wake.clear()
        finally:
            await self._rest.close()

    def _judge(self, outcome: Outcome) -> None:
        if not outcome.error:
            self._final = ()  # what has worked once may work again
        elif isinstance(outcome.error, self._final):
            raise outcome.error

    async def _pause(self, outcome: Outcome) -> None:
        if outcome.report.processed:
            self._idle.reset()
        wanted = Next.BACK_OFF if outcome.error else outcome.report.next
        match wanted:
            case Next.AGAIN:
                self._idle.reset()
                self._error.reset()
                await self._wait(self._pace.busy)
            case Next.IDLE:
                self._error.reset()
                await self._rest.rest(self.wake, self._idle.next(), worked=outcome.report.updated)
            case Next.BACK_OFF:
                self._idle.reset()
                await self._wait(self._rest.after_failure(self._error.next()))
            case _:
                assert_never(wanted)

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await self._clock.wait(self.wake, seconds)
