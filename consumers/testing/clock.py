"""A clock that stands still until it is moved."""

import asyncio
import heapq
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

# Time goes by in steps that a float holds exactly, so that what waits for two minutes and what waits for 120 times a
# second come to the same end; waits are rounded up, never down.
_STEPS = 1 << 20
# A delivery in memory takes some tens of turns of the event loop down its road.
_TURNS = 60


class _Timer:
    """A call that is to come."""

    __slots__ = ("args", "call", "cancelled", "when")

    def __init__(self, when: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.when = when
        self.call = call
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Let it not come."""
        self.cancelled = True

    def fire(self) -> None:
        """Call now, unless it was cancelled."""
        if not self.cancelled:
            self.call(*self.args)


class FakeClock:
    """A consumer's clock in a test: retries, deferrals, leases and timeouts pass when it is moved, and then at once.

    It begins at `start`, or else now. What a handler itself sleeps goes by the event loop's time, as ever.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start = (start or datetime.now(UTC)).timestamp()
        self._now = 0
        self._timers: list[tuple[int, int, _Timer]] = []
        self._number = count()

    def now(self) -> datetime:
        """The moment at which it stands."""
        return datetime.fromtimestamp(self.wall(), UTC)

    def wall(self) -> float:
        """The same in seconds since 1970."""
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since its beginning."""
        return self._now / _STEPS

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> _Timer:
        """Call when it was moved by so many seconds."""
        timer = _Timer(self._now + _steps(seconds), call, args)
        if timer.when <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (timer.when, next(self._number), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return when it was moved by so many seconds."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, _end, over)
        try:
            await over
        finally:
            timer.cancel()

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, up to so many seconds; true when it was the event."""
        try:
            async with self.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return False

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """What `asyncio.timeout` is, by this clock."""
        async with asyncio.timeout(None) as limit:
            timer = None if seconds is None else self.call_later(seconds, self._expire, limit)
            try:
                yield limit
            finally:
                if timer is not None:
                    timer.cancel()

    async def advance(self, seconds: float | timedelta) -> None:
        """Move it; whatever is due meanwhile happens in its order, each at its time.

        What follows in memory has happened when this returns. What a handler waits for outside, such as a database or
        its thread, may take longer.
        """
        until = self._now + _steps(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
        await settle()
        while (due := self._next()) is not None and due <= until:
            self._now = due
            while self._next() == due:
                heapq.heappop(self._timers)[2].fire()
            await settle()
        self._now = until

    def next_due(self) -> float | None:
        """Seconds until something happens; None where nothing waits."""
        due = self._next()
        return None if due is None else (due - self._now) / _STEPS

    def _next(self) -> int | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _expire(self, limit: asyncio.Timeout) -> None:
        limit.reschedule(asyncio.get_running_loop().time())


def _end(wait: "asyncio.Future[None]") -> None:
    if not wait.done():
        wait.set_result(None)


async def settle() -> None:
    """Let everything happen that waits for nothing but its turn."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return


def _steps(seconds: float) -> int:
    return max(0, math.ceil(seconds * _STEPS))
