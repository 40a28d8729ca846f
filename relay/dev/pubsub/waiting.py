"""Waiting for what a subscription has to tell: that something changed, or that something is due."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self


class Source(Protocol):
    """What changes by itself, on its clock, and by others, who are heard of."""

    def next_event(self) -> float | None:
        """Return the clock's time at which something happens by itself."""

    def now(self) -> float:
        """Return the clock's time."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever something changed."""

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""


class Waiter:
    """Waits until trying again is worth it: a listener's call, a lease's end, or a timeout."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._source.listen(self.wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._source.unlisten(self.wake)

    def wake(self) -> None:
        """End the wait, or the next one."""
        self._changed.set()

    async def wait(self, at_most: float | None = None) -> None:
        """Wait."""
        due = self._source.next_event()
        if due is not None:
            pause = max(0.0, due - self._source.now())
            at_most = pause if at_most is None else min(at_most, pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        self._changed.clear()
