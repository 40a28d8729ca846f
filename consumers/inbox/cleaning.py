"""Removes what ended long ago, a page at a time: one process of a consumer does, the others look now and then.

A round goes over the primary key, up to what was created within the retention; the next begins at the first row again.
"""

from datetime import timedelta
from typing import Final

from consumers.clock import Clock
from consumers.events import InboxCleaned
from consumers.inbox.checkpoints import Checkpoint, Checkpoints
from consumers.inbox.session import Session
from relay.kernel.backoff import Delay
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report

NAME: Final = "cleaning"
PAGE: Final = 500
# After each page nothing is done for so many times as long as it took.
PAUSES: Final = 4
ROUND_SECONDS: Final = 600.0
# Whoever walked and was silent for so long has ended.
SILENCE_SECONDS: Final = 60.0


class Cleaning:
    """The runner that cleans."""

    name = "inbox_cleaning"
    pace = Pace(
        busy=0.0,
        idle=Delay(first=ROUND_SECONDS, most=ROUND_SECONDS, jitter=60.0),
        error=Delay(first=30.0, most=300.0, jitter=5.0),
    )

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        session: Session,
        *,
        consumer: str,
        owner: str,
        retention: timedelta,
        clock: Clock,
        observe: Observe,
        page: int = PAGE,
    ) -> None:
        self._session = session
        self._checkpoints = Checkpoints(session, consumer)
        self._consumer = consumer
        self._owner = owner
        self._retention = retention.total_seconds()
        self._clock = clock
        self._observe = observe
        self._page = page

    async def run_once(self, budget: Budget) -> Report:
        """Go on with the round, unless another process does or it is not time for one."""
        try:
            return await self._round(budget)
        finally:
            await self._session.rest()

    async def close(self) -> None:
        """The session is ended by whoever has made it."""

    async def _round(self, budget: Budget) -> Report:
        began, removed, read = self._clock.monotonic(), 0, 0
        cutoff = await self._cutoff()
        walk = await self._take(cutoff)
        while walk is not None and not walk.finished and not budget.spent(read):
            page_began = self._clock.monotonic()
            rows = await self._session.ask(
                "clean",
                {
                    "consumer": self._consumer,
                    "name": NAME,
                    "before": walk.text,
                    "cutoff": cutoff,
                    "rows": self._page,
                },
            )
            if not rows:
                walk = None  # somebody else goes on with it
                break
            ((text, finished, visited, gone),) = rows
            walk = Checkpoint(NAME, text, bool(finished))
            read += int(visited)
            removed += int(gone)
            if not walk.finished:
                took = self._clock.monotonic() - page_began
                await self._clock.wait(budget.stopping, PAUSES * took)
        if removed:
            self._observe(InboxCleaned(self._consumer, removed, self._clock.monotonic() - began))
        unfinished = walk is not None and not walk.finished
        return Report(processed=read, updated=removed, next=Next.AGAIN if unfinished else Next.IDLE)

    async def _cutoff(self) -> float:
        ((now, _),) = await self._session.ask("now", {})
        return float(now) - self._retention

    async def _take(self, cutoff: float) -> Checkpoint | None:
        """The walk, if it is this process's now."""
        found = await self._checkpoints.read(NAME)
        if found is None:
            return await self._checkpoints.begin(NAME, self._position(0, cutoff))
        position = found.position
        # What was once cleaned away is not forgotten where the retention gets longer.
        until = max(cutoff, float(position["until"]))
        if found.finished:
            due = found.age >= ROUND_SECONDS
            return await self._checkpoints.move(found, self._position(0, until)) if due else None
        if position["by"] != self._owner and found.age < SILENCE_SECONDS:
            return None
        return await self._checkpoints.move(found, self._position(position["after"], until))

    def _position(self, after: int, until: float) -> dict[str, object]:
        return {"after": after, "until": until, "by": self._owner}
