"""Time as the kernel sees it: one clock that runs, and that a test can replace."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the kernel asks of time."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Sleep until the event or the end of the time; true when it was the event."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Sleep until the event or the end of the time; true when it was the event."""
        try:
            async with asyncio.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return False
