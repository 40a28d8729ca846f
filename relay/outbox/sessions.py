"""The session on which a relay sleeps: made, made anew when it is lost, and ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from relay.errors import RelayError
from relay.outbox.events import ListenConnected, ListenLost
from relay.outbox.listening import GRACE_SECONDS, DeafError, Listening

# Before the connection is tried again: after an error, and where nothing is heard.
LOST_SECONDS = (0.5, 30.0)
DEAF_SECONDS = (30.0, 300.0)
# A session that lasted so long was a good one.
STEADY_SECONDS = 60.0
# The end of the process waits no longer for a session that is being made.
CLOSE_SECONDS = 0.5

FAILURES = (psycopg.Error, RelayError, OSError)

Open = Callable[[], Awaitable[Listening]]


class Sessions:
    """At most one session at a time; `most_seconds` is the longest time between two of its statements."""

    def __init__(self, open_: Open, most_seconds: float, observe: Callable[[object], None]) -> None:
        self._open = open_
        self._most_seconds = most_seconds
        self._observe = observe
        self._listening: Listening | None = None
        self._opening: asyncio.Task[Listening] | None = None
        self._opened_at = 0.0
        self._open_at = 0.0
        self._failures = 0
        self._told_lost = False
        self._used_at = 0.0

    def used(self) -> None:
        """Note that a statement is asked: a session that is silent for too long is ended by the server."""
        self._used_at = _now()

    async def wait(self, wake: asyncio.Event, seconds: float) -> Listening | None:
        """The session; where there is none, None after `seconds`, in which one may be made."""
        if self._listening is not None:
            return self._listening
        if self._opening is None and _now() >= self._open_at:
            self._opening = asyncio.create_task(self._opened())
        waiting: set[asyncio.Task[Any]] = {asyncio.create_task(wake.wait())}
        if self._opening is not None:
            waiting.add(self._opening)
        deadline = _now() + seconds
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._opening is None or not self._opening.done():
                return None
            opening, self._opening = self._opening, None
            try:
                self._listening = opening.result()
            except FAILURES as error:
                self._refused(error)
                await pause(wake, deadline - _now())
                return None
        finally:
            for task in waiting - {self._opening}:
                task.cancel()
        self._opened_at = self._used_at = _now()
        self._told_lost = False
        self._observe(ListenConnected(self._listening.database))
        return self._listening

    async def lost(self, error: BaseException, *, by_us: bool = False) -> None:
        """Make a new one, soon; tell of it unless it was ended on purpose, or by the server as this process hung."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.close()
        if by_us or _now() - self._used_at >= self._most_seconds + GRACE_SECONDS:
            return
        if _now() - self._opened_at >= STEADY_SECONDS:
            self._failures = 0
            self._tell(error, 0.0)
        else:
            self._refused(error)

    async def close(self) -> None:
        """End the session, also one that is being made."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening}, timeout=CLOSE_SECONDS)
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.close()

    async def _opened(self) -> Listening:
        return await self._open()

    def _refused(self, error: BaseException) -> None:
        first, most = DEAF_SECONDS if isinstance(error, DeafError) else LOST_SECONDS
        wait = min(most, first * 2 ** min(self._failures, 16))
        self._failures += 1
        self._open_at = _now() + wait
        self._tell(error, wait)

    def _tell(self, error: BaseException, wait: float) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._observe(ListenLost(error, wait))


async def pause(wake: asyncio.Event, seconds: float) -> None:
    """Wait for the time, or the wake-up."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await wake.wait()
    except TimeoutError:
        return


def _now() -> float:
    return asyncio.get_running_loop().time()
