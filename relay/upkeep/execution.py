"""A job's function at work: until it ends, its time is over, its lock is lost, or the process will wait no longer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from relay.upkeep.events import Status

# Whoever has not ended so long after it was cancelled is told of.
DEAF_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended, and by which error."""

    status: Status
    error: BaseException | None = None


class Execution:
    """Runs a function once. What is cancelled is waited for: as long as it works, it has not ended.

    `lost` returns when the lock is lost, with the reason; `deaf` is told of a function that does not end.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[None]],
        lost: Coroutine[Any, Any, BaseException],
        deaf: Callable[[Status], None],
    ) -> None:
        self._work = asyncio.create_task(_ending(work))
        self._lock = asyncio.create_task(_loss(lost))
        self._deaf = deaf
        self.interrupted = False
        """Whether whoever waits for it was cancelled meanwhile, which is then for them to pass on."""

    async def run(self, seconds: float) -> Ending:
        """Wait until it has ended, and cancel it after so long at the latest. Cancelled, it waits all the same."""
        try:
            why = await self._reason_to_cancel(seconds)
            if why is None:
                return self._own_ending()
            self._work.cancel()
            await self._wait_for_end(why.status)
            if self._lock.done():
                why = Ending(Status.LOST, self._lock.result())
            if why.error is not None:
                # Where it was, for whoever reads a trace.
                why.error.__cause__ = self._own_ending().error
            return why
        finally:
            self._lock.cancel()
            await self._wait_for_lock()

    async def _reason_to_cancel(self, seconds: float) -> Ending | None:
        try:
            await asyncio.wait({self._work, self._lock}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.interrupted = True
            return None if self._work.done() else Ending(Status.CANCELLED)
        if self._work.done():
            return None
        if self._lock.done():
            return Ending(Status.LOST, self._lock.result())
        return Ending(Status.TIMED_OUT, TimeoutError(f"not done within {seconds:g} s"))

    def _own_ending(self) -> Ending:
        # Cancelled before its first step, it has not come to say so.
        return Ending(Status.FAILED, asyncio.CancelledError()) if self._work.cancelled() else self._work.result()

    async def _wait_for_end(self, status: Status) -> None:
        told = False
        while not self._work.done():
            try:
                await asyncio.wait({self._work}, timeout=None if told else DEAF_SECONDS)
            except asyncio.CancelledError:
                self.interrupted = True
                continue
            if not self._work.done():
                told = True
                self._deaf(status)

    async def _wait_for_lock(self) -> None:
        while not self._lock.done():
            try:
                await asyncio.wait({self._lock})
            except asyncio.CancelledError:
                self.interrupted = True


async def _loss(lost: Coroutine[Any, Any, BaseException]) -> BaseException:
    try:
        return await lost
    except Exception as error:  # noqa: BLE001 -- whoever cannot tell any more whether the lock is there has lost it
        return error


async def _ending(work: Callable[[], Awaitable[None]]) -> Ending:
    try:
        await work()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 -- whatever a job raises is the job's: its process goes on
        return Ending(Status.FAILED, error)
    return Ending(Status.DONE)
