"""Calls of the user's own code that nobody waits for longer than it may take."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

from consumers.clock import Clock
from consumers.errors import TransientError

# A function that was cancelled may not hold the end of the process up for longer.
_LAST_WORD_SECONDS: Final = 1.0


class Calling:
    """So many seconds are given to each call."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds

    async def answer(self, call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
        """What it answers, or raises; when we are cancelled, so is it."""
        running = asyncio.ensure_future(_guarded(call))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running], timeout=_LAST_WORD_SECONDS)
            raise
        if running.cancelled():
            return None, RuntimeError("it was cancelled by something of its own")
        return running.result()

    async def limited(self, work: Awaitable[Any]) -> Any:
        """What it answers in its time. Raises TransientError where it is cancelled at the end of that."""
        limit: asyncio.Timeout | None = None
        try:
            async with self._clock.timeout(self.seconds) as limit:
                return await work
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise
            raise TransientError(f"timed out after {self.seconds:g} s", "TIMEOUT") from error


async def _guarded(call: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await call, None
    except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 -- whatever the user's own code raises is its answer
        return None, error
