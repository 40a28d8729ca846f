"""The workers of one consumer: each takes one delivery after the other down the road."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from consumers.clock import Clock
from consumers.job import Job

# A worker gives way to the others, to the source and to signals after so many deliveries that never waited.
_TURN = 8


class Crew:
    """Up to `most` workers, made as they are needed. `take` gives the next delivery, if there is one."""

    def __init__(
        self,
        most: int,
        take: Callable[[], Job | None],
        work: Callable[[Job], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._most = most
        self._take = take
        self._work = work
        self._clock = clock
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._dismissed = False
        self._calm = asyncio.Event()
        self._busy = 0
        self._calm.set()

    def wake(self) -> None:
        """There may be something to take."""
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                return
        if len(self._workers) < self._most and not self._dismissed:
            worker = asyncio.create_task(self._serve())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    async def calm(self, seconds: float) -> bool:
        """Wait until nobody works on anything; false where that takes longer."""
        try:
            async with self._clock.timeout(seconds):
                await self._calm.wait()
        except TimeoutError:
            return False
        return True

    async def dismiss(self, seconds: float) -> None:
        """End them all, whatever they do; what does not end in this time is left to the end of the process."""
        self._dismissed = True
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    await asyncio.wait(workers)

    async def _serve(self) -> None:
        streak = 0
        task = asyncio.current_task()
        while not self._dismissed:
            job = self._take()
            if job is None:
                streak = 0
                waiting = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                await waiting
                continue
            job.task = task
            self._busy += 1
            self._calm.clear()
            try:
                await self._work(job)
            finally:
                job.task = None
                self._busy -= 1
                if not self._busy:
                    self._calm.set()
            streak += 1
            if streak >= _TURN:
                streak = 0
                await asyncio.sleep(0)

    def _ended(self, worker: "asyncio.Task[None]") -> None:
        self._workers.discard(worker)
        if not worker.cancelled():
            worker.exception()  # what it died of is told where it happened
