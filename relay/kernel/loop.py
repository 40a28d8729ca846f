"""The loop around one worker: pass, wait as the pass asks for, pass again, until the process stops."""

import asyncio
from typing import assert_never

from relay.kernel.backoff import Backoff, Jitter, uniform
from relay.kernel.clock import Clock
from relay.kernel.runner import Next
from relay.kernel.worker import Outcome, Worker


class Loop:
    """Calls a worker at its runner's pace; a wake-up cuts any wait short."""

    def __init__(self, worker: Worker, clock: Clock, pass_seconds: float, jitter: Jitter = uniform) -> None:
        self.worker = worker
        self.wake = asyncio.Event()
        self._clock = clock
        self._pass_seconds = pass_seconds
        self._pace = worker.runner.pace
        self._idle = Backoff(self._pace.idle, jitter)
        self._error = Backoff(self._pace.error, jitter)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run passes until `stopping` is set; whoever sets it also sets `wake`."""
        while not stopping.is_set():
            outcome = await self.worker.run_once(stopping, self._pass_seconds)
            delay = self._delay_after(outcome)
            if delay > 0:
                await self._clock.wait(self.wake, delay)
            self.wake.clear()

    def _delay_after(self, outcome: Outcome) -> float:
        wanted = Next.BACK_OFF if outcome.error else outcome.report.next
        match wanted:
            case Next.AGAIN:
                self._idle.reset()
                self._error.reset()
                return self._pace.busy
            case Next.IDLE:
                self._error.reset()
                return self._idle.next()
            case Next.BACK_OFF:
                self._idle.reset()
                return self._error.next()
            case _:
                assert_never(wanted)
