"""How a loop with nothing to do rests until its next pass."""

import asyncio
from typing import Protocol

from relay.kernel.clock import Clock


class Rest(Protocol):
    """What an idle loop asks for between two passes."""

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: int) -> None:
        """Return when the next pass shall begin, and at once when `wake` is set.

        `seconds` is the pause that the runner's pace asks for. `worked` says how much the last pass got done: one that
        did nothing must not be followed by the next without a pause, again and again.
        """
        ...

    def after_failure(self, seconds: float) -> float:
        """How long to wait after a pass that failed, where the runner's pace asks for so many seconds."""
        ...

    async def close(self) -> None:
        """Let go of whatever is held; the loop has ended."""
        ...


class ByTheClock:
    """Rests for as long as the pace asks for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: int) -> None:  # noqa: ARG002 -- all the same
        """Wait until the event or the end of the time."""
        await self._clock.wait(wake, seconds)

    def after_failure(self, seconds: float) -> float:
        """As the pace asks for."""
        return seconds

    async def close(self) -> None:
        """Nothing is held."""
