"""Moves away what ended long ago, a page at a time: one process of a consumer does, the others look now and then.

A round goes over the primary key, up to what was created within the retention; the next begins at the first row again.
"""

from datetime import timedelta
from typing import Final

import psycopg
from psycopg import sql

from consumers.clock import Clock
from consumers.events import InboxCleaned
from consumers.inbox.checkpoints import Checkpoint, Checkpoints
from consumers.inbox.session import Connect, Session
from idempotency import StoreUnavailableError
from relay.kernel.backoff import Delay
from relay.kernel.failure import told
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.upkeep.catalog import Described
from relay.upkeep.mover import Mover
from relay.upkeep.page import Key
from relay.upkeep.table import Child, Destination, Table
from relay.upkeep.table_name import TableName
from relay.upkeep.transactions import Transactions

NAME: Final = "cleaning"
PAGE: Final = 500
ROUND_SECONDS: Final = 600.0
# Whoever walked and was silent for so long has ended.
SILENCE_SECONDS: Final = 60.0


def finished_deliveries(
    schema: str, consumer: str, retention: timedelta, to: Destination = "nowhere", page: int = PAGE
) -> Table:
    """Those of a consumer that are over, with their history; what has failed is not, until it is discarded."""
    return Table(
        name=str(TableName(schema, "inbox_deliveries")),
        age="finished_at",
        older_than=retention,
        where=f"consumer = {sql.Literal(consumer).as_string(None)} and (state = 'done' or outcome = 'discarded')",
        to=to,
        # Nothing has ended before it was created.
        born="created_at",
        batch=page,
        children=(Child("inbox_history", "delivery_id", "at"),),
    )


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
        deliveries: Table,
        connect: Connect,
        *,
        consumer: str,
        owner: str,
        clock: Clock,
        observe: Observe,
    ) -> None:
        self._session = session
        self._deliveries = deliveries
        self._connect = connect
        self._checkpoints = Checkpoints(session, consumer)
        self._consumer = consumer
        self._owner = owner
        self._clock = clock
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Go on with the round, unless another process does or it is not time for one."""
        try:
            return await self._round(budget)
        finally:
            await self._session.rest()

    async def close(self) -> None:
        """The session is ended by whoever has made it."""

    async def _round(self, budget: Budget) -> Report:
        began = self._clock.monotonic()
        cutoff = await self._cutoff()
        walk = await self._take(cutoff)
        if walk is None:
            return Report()
        position = _Checkpointed(self._checkpoints, walk)
        mover = Mover(self._deliveries, self._connect, position, clock=self._clock, before=cutoff)
        try:
            moved = await mover.run(budget)
        except (psycopg.Error, OSError) as error:
            raise StoreUnavailableError(f"the inbox was not reached: {told(error)}") from error
        if moved.moved:
            self._observe(InboxCleaned(self._consumer, moved.moved, self._clock.monotonic() - began))
        unfinished = position.is_ours and not moved.finished
        return Report(processed=moved.read, updated=moved.moved, next=Next.AGAIN if unfinished else Next.IDLE)

    async def _cutoff(self) -> float:
        ((now, _),) = await self._session.ask("now", {})
        return float(now) - self._deliveries.after.total_seconds()

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


class _Checkpointed:
    """The checkpoint of the walk, as a mover notes it: page by page, so that others see who goes on with it."""

    def __init__(self, checkpoints: Checkpoints, walk: Checkpoint) -> None:
        self._checkpoints = checkpoints
        self._walk = walk
        self.is_ours = True

    async def begin(self, say: Transactions, described: Described) -> Key:  # noqa: ARG002 -- it is in no table of theirs
        """Behind which delivery to go on."""
        return [str(self._walk.position["after"])]

    async def note(self, after: Key | None) -> bool:
        """A page has come so far; False where another process goes on with it."""
        await self._note({**self._walk.position, "after": int(after[0]) if after else 0}, finished=False)
        return self.is_ours

    async def end(self, after: Key | None) -> None:
        """The round is finished, or left as it was noted."""
        if after is None:
            await self._note(self._walk.position, finished=True)

    async def _note(self, position: dict[str, object], *, finished: bool) -> None:
        moved = await self._checkpoints.move(self._walk, position, finished=finished)
        self.is_ours = moved is not None
        self._walk = moved or self._walk
