"""Keeps what is acted on: all leases of a process are renewed together, and what could not be kept is told in time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from math import inf
from typing import Final, Generic, TypeVar

from relay.kernel.clock import Clock

_LOG = logging.getLogger(__name__)
_SHORTEST_LOOK = 0.05


class Lost(Enum):
    """Somebody else has it."""

    LOST = auto()


LOST: Final = Lost.LOST
# For each until when it is ours by our own clock; None where that is not known, and its lease goes on as it was.
Renewed = float | Lost | None
Held = TypeVar("Held")


class Keeper(Generic[Held]):
    """Renews leases every so often; one that is not renewed is lost when it ends by our own clock.

    That clock was read before the store's was: whoever acts on it is told before anybody else may begin.
    """

    def __init__(
        self,
        renew: Callable[[Sequence[Held]], Awaitable[Sequence[Renewed]]],
        clock: Clock,
        *,
        every: float,
        now: Callable[[], float],
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._every = every
        self._now = now
        self._deadlines: dict[Held, float] = {}
        self._on_lost: Callable[[Held], None] = lambda _: None
        self._task: asyncio.Task[None] | None = None
        self._never = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def start(self, on_lost: Callable[[Held], None]) -> None:
        """Begin to renew."""
        self._on_lost = on_lost
        self._task = asyncio.create_task(self._keep())

    def keep(self, held: Held, deadline: float) -> None:
        """Renew it from now on; it is ours until `deadline`."""
        self._deadlines[held] = deadline

    def drop(self, held: Held) -> None:
        """Renew it no longer, and say nothing of its end."""
        self._deadlines.pop(held, None)

    async def close(self) -> None:
        """Renew nothing any longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self) -> None:
        renewal: asyncio.Task[None] | None = None
        due = self._now() + self._every
        try:
            while True:
                now = self._now()
                if renewal is not None and renewal.done() and (surprise := renewal.exception()) is not None:
                    _LOG.error("leases were not renewed, and are again in a moment", exc_info=surprise)
                    renewal = None
                if now >= due and (renewal is None or renewal.done()):
                    renewal, due = asyncio.create_task(self._renew_all(list(self._deadlines))), now + self._every
                for held in [held for held, deadline in self._deadlines.items() if deadline <= now]:
                    self._lose(held)
                # However long a renewal takes: never later than the end of a lease.
                earliest = min(self._deadlines.values(), default=inf)
                await self._clock.wait(self._never, min(max(due, now + _SHORTEST_LOOK), earliest) - now)
        finally:
            if renewal is not None:
                renewal.cancel()
                await asyncio.gather(renewal, return_exceptions=True)

    async def _renew_all(self, all_held: Sequence[Held]) -> None:
        if not all_held:
            return
        for held, renewed in zip(all_held, await self._renew(all_held), strict=True):
            if held not in self._deadlines:
                continue  # it has ended meanwhile
            match renewed:
                case Lost():
                    self._lose(held)
                case float():
                    self._deadlines[held] = renewed
                case None:
                    pass  # asked again, until its lease ends

    def _lose(self, held: Held) -> None:
        del self._deadlines[held]
        self._on_lost(held)
