"""`emit` in turns with a bare INSERT of the same row, by one driver: `python -m benchmarks.emitting DRIVER MANY BULK`.

Both begin with the same order, and end with a commit that waits for the disk: MANY times one event in a transaction of
its own, then transactions of BULK events each, in one statement. Who inserts makes the envelope itself, in Python.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from benchmarks.contest import answer, take_part
from benchmarks.emitting_drivers import DRIVERS, Driver
from benchmarks.ids import time_ordered
from benchmarks.sections.emit import BARE, BULK_BARE, BULK_EMIT, EMIT
from relay import Event

# In so short turns that whatever slows the machine down slows both.
_TURNS = 20
_BULKS = 40
_COLUMNS = "event_id, event_type, aggregate_type, aggregate_id, payload"
# With a place for each value, as its driver writes it; the casts are those without which no driver sends it.
_ONE = "values (cast({0} as uuid), {1}, {2}, {3}, cast({4} as jsonb))"
_MANY = (
    "select * from unnest(cast({0} as uuid[]), cast({1} as text[]), cast({2} as text[]), cast({3} as text[]), "
    "cast(cast({4} as text[]) as jsonb[]))"
)
_TYPE, _AGGREGATE = "order.paid", "order"


async def main(name: str, many: int, bulk: int) -> None:
    """Take part in a contest."""
    async with DRIVERS[name](os.environ["DATABASE_URL"]) as driver:
        one = _Rivals(driver, _ONE, 1)
        all_ = _Rivals(driver, _MANY, bulk)
        await one.turns(2, 50)
        await all_.turns(2, 1)
        take_part()
        bare, ours = await one.turns(_TURNS, many // _TURNS)
        bulk_bare, bulk_ours = await all_.turns(_BULKS, 1)
    answer(**{BARE: bare, EMIT: ours, BULK_BARE: bulk_bare, BULK_EMIT: bulk_ours})


class _Rivals:
    """A bare INSERT and `emit`, of so many events in a transaction."""

    def __init__(self, driver: Driver, values: str, events: int) -> None:
        places = [driver.place(number) for number in range(5)]
        self._insert = f"insert into outbox_events ({_COLUMNS}) {values.format(*places)}"
        self._driver = driver
        self._events = events
        self._number = 0

    async def turns(self, turns: int, many: int) -> tuple[float, float]:
        """Microseconds that an event costs either way, over so many turns of so many transactions."""
        seconds = {self.bare: 0.0, self.emit: 0.0}
        for turn in range(turns):
            for rival in reversed(seconds) if turn % 2 else list(seconds):
                seconds[rival] += await self._timed(rival, many)
        bare, ours = (1e6 * took / (turns * many * self._events) for took in seconds.values())
        return bare, ours

    async def bare(self, orders: Sequence[int]) -> None:
        """What a service would write that makes its rows itself."""
        rows = [_row(number) for number in orders]
        await self._driver.insert(self._insert, rows[0] if len(rows) == 1 else [*map(list, zip(*rows, strict=True))])

    async def emit(self, orders: Sequence[int]) -> None:
        """What it writes with us."""
        events = [_event(number) for number in orders]
        await self._driver.emit(events[0] if len(events) == 1 else events)

    async def _timed(self, rival: Callable[[Sequence[int]], Awaitable[None]], many: int) -> float:
        began = time.perf_counter()
        for _ in range(many):
            self._number += self._events
            await rival(range(self._number, self._number + self._events))
        return time.perf_counter() - began


def _data(number: int) -> dict[str, object]:
    return {"number": number, "note": "x" * 200}


def _event(number: int) -> Event:
    return Event(event_type=_TYPE, aggregate_type=_AGGREGATE, aggregate_id=str(number), data=_data(number))


def _row(number: int) -> tuple[str, ...]:
    event_id = str(time_ordered())
    envelope = {
        "event_id": event_id,
        "event_type": _TYPE,
        "version": 1,
        "occurred_at": datetime.now(UTC).isoformat(),
        "actor": None,
        "data": _data(number),
    }
    return event_id, _TYPE, _AGGREGATE, str(number), json.dumps(envelope)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
