"""Time as a consumer sees it: one clock for all its timers, which a test can replace."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from relay.kernel import clock as kernel


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come."""
        ...


class Clock(kernel.Clock, Protocol):
    """What the SDK asks of time. Handlers have their own: what they sleep is not asked of this one."""

    def wall(self) -> float:
        """Seconds since 1970."""
        ...

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call in the event loop, after so many seconds."""
        ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """What `asyncio.timeout` is."""
        ...


class SystemClock(kernel.SystemClock):
    """The clock of this machine."""

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call in the event loop, after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, call, *args)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """What `asyncio.timeout` is."""
        return asyncio.timeout(seconds)
