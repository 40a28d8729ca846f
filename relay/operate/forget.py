"""`relay forget`: find what the outbox keeps about aggregates, and have it forgotten, batch after batch.

    mark ──transactions from before it end──> walk ──> ids by state ──> lock, check again, record, change
                                                                   └──> look at what was stored since the mark

Rows up to the mark are meant, and no other: what comes later is counted at the end and left to the next call.
"""

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from relay.errors import OperateError
from relay.outbox.forget import Aggregates, Mark, Order, State

PAGE, BATCH = 10_000, 500
# How long transactions that were open at the start are waited for.
PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.05

Progress = Callable[[str, int], None]


@dataclass(slots=True)
class Walk:
    """The rows that are meant, by their state."""

    newest: int
    settled: bool  # whether no transaction from before the walk could store further rows below its end
    ids: dict[State, "array[int]"] = field(default_factory=lambda: {state: array("q") for state in State})

    @property
    def counts(self) -> dict[State, int]:
        """How many there are of each state."""
        return {state: len(ids) for state, ids in self.ids.items()}

    @property
    def undecided(self) -> int:
        """How many wait to be published, or for somebody's decision."""
        return sum(len(ids) for state, ids in self.ids.items() if not state.decided)


@dataclass(slots=True)
class Forgotten:
    """What became of the rows."""

    action_id: str
    rows: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))  # forgotten, by the state it ended
    left: int = 0  # found, and not forgotten: gone by another hand, or pending or failed by now
    since: int = 0  # stored after the command began

    @property
    def done(self) -> int:
        """How many rows were forgotten."""
        return sum(self.rows.values())


async def find(aggregates: Aggregates, progress: Progress, patience: float = PATIENCE_SECONDS) -> Walk:
    """Walk over the table and change nothing."""
    mark = await aggregates.mark()
    walk = Walk(mark.newest, await _settled(aggregates, mark, patience))
    await _read(aggregates, 0, mark.newest, walk, progress)
    return walk


async def forget(aggregates: Aggregates, walk: Walk, order: Order, progress: Progress) -> Forgotten:
    """Forget what was found, then look at what was stored meanwhile."""
    done = Forgotten(str(order.action_id))
    ids = sorted(row_id for found in walk.ids.values() for row_id in found)
    try:
        for first in range(0, len(ids), BATCH):
            batch = ids[first : first + BATCH]
            acted = await aggregates.forget(order, batch)
            for state, count in acted.items():
                done.rows[state] += count
            done.left += len(batch) - sum(acted.values())
            progress("rows done", done.done)
    except OperateError as error:
        raise OperateError(f"{done.done:,} row(s) are done and recorded; {error}") from error
    since = Walk((await aggregates.mark()).newest, settled=True)
    await _read(aggregates, walk.newest, since.newest, since, progress)
    done.since = sum(since.counts.values())
    return done


async def _settled(aggregates: Aggregates, mark: Mark, patience: float) -> bool:
    for _ in range(max(1, round(patience / _POLL_SECONDS))):
        if await aggregates.settled(mark):
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


async def _read(aggregates: Aggregates, after: int, newest: int, into: Walk, progress: Progress) -> None:
    read = 0
    while after < newest:
        page = await aggregates.page(after, newest, PAGE)
        for row_id, state in page.found:
            into.ids[state].append(row_id)
        if page.last is None:
            return
        after = page.last
        read += page.read
        progress("rows read", read)
