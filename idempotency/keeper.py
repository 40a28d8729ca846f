"""Keeping a lease alive in the background while its holder works."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

from idempotency.answers import Claimed, Locked
from idempotency.errors import LeaseLostError

T = TypeVar("T")
Held = TypeVar("Held", bound=Claimed | Locked)

# A lease is renewed when a third of it is over, and tried a few times more before it ends.
RENEWALS = 3
FAILED_RENEWALS = 10


class Keeper(Generic[Held]):
    """Renews what a task holds, and cancels the task when it is lost.

    `async with` runs the body; where the body was cancelled for the loss alone, LeaseLostError is raised instead.
    """

    def __init__(
        self,
        held: Held,
        renew: Callable[[Held], Awaitable[Held]],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.held = held
        self.lost: LeaseLostError | None = None
        self._renew = renew
        self._clock = clock
        self._sleep = sleep
        self._holder: asyncio.Task[Any] | None = None
        self._cancellations = 0

    async def __aenter__(self) -> None:
        self._holder = asyncio.current_task()
        self._cancellations = self._holder.cancelling() if self._holder else 0
        self._renewing = asyncio.create_task(self._keep())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        held_back = await self._stop()
        if self._holder is None:
            return
        if self.lost is not None:
            held_back |= await _interrupted(asyncio.sleep(0))  # by our own cancellation, if the body had no await left
            self._holder.uncancel()
        cancelled_by_others = self._holder.cancelling() > self._cancellations
        if self.lost is not None and not cancelled_by_others and kind and issubclass(kind, asyncio.CancelledError):
            raise self.lost from error
        if held_back and cancelled_by_others:
            self._holder.uncancel()
            self._holder.cancel()  # comes with the next await: what the body has done is settled first

    async def _stop(self) -> bool:
        self._renewing.cancel()
        held_back = False
        while not self._renewing.done():
            held_back |= await _interrupted(asyncio.wait([self._renewing]))
        return held_back

    async def _keep(self) -> None:
        pause = self._share(RENEWALS)
        while True:
            await self._sleep(min(pause, max(0.0, self._left())))
            try:
                async with asyncio.timeout(max(0.0, self._left())):
                    self.held = await self._renew(self.held)
                pause = self._share(RENEWALS)
            except LeaseLostError as error:
                return self._lose(error)
            except Exception as error:  # noqa: BLE001 -- the cause of the loss, when it lasts
                if self._left() <= 0:
                    return self._lose(ran_out(self.held, error))
                pause = self._share(FAILED_RENEWALS)

    def _lose(self, error: LeaseLostError) -> None:
        self.lost = error
        if self._holder is not None:
            self._holder.cancel(str(error))

    def _share(self, parts: int) -> float:
        return self.held.lease.total_seconds() / parts

    def _left(self) -> float:
        return self.held.deadline - self._clock()


def ran_out(held: Claimed | Locked, cause: Exception | None = None) -> LeaseLostError:
    """The loss of what could not be renewed in time."""
    what = f"event {held.event_id} for {held.consumer!r}" if isinstance(held, Claimed) else f"the lock {held.name!r}"
    error = LeaseLostError(f"the lease on {what} ran out: it could not be renewed within its {held.lease}")
    error.__cause__ = cause
    return error


async def _interrupted(what: Awaitable[Any]) -> bool:
    """Whether a cancellation came while it was awaited."""
    try:
        await what
    except asyncio.CancelledError:
        return True
    return False


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await what had better not be broken off: a cancellation of the caller is raised when it is over."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is what the caller hears of
        raise
