"""How a consumer with an inbox asks its table for deliveries: how often, for how many, and what it tells of that."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from consumers.delivery import Delivery
from consumers.events import ClaimMade
from consumers.inbox.claiming import Claiming
from consumers.inbox.inbox import Inbox
from consumers.inbox.rows import Claimed, Head, Owned, Waiting
from consumers.inbox.table import Identity, Table
from consumers.sources.source import Share
from consumers.testing.clock import FakeClock

POLL = 0.5


@dataclass
class FakeTable:
    """An inbox that has what the test says, and writes down what it is asked for."""

    clock: FakeClock
    heads: list[Head] = field(default_factory=list)
    others_have: set[int] = field(default_factory=set)
    looks: list[float] = field(default_factory=list)
    asked: list[list[int]] = field(default_factory=list)
    identity: Identity = field(default_factory=lambda: Identity(consumer="billing", owner="test", lease_seconds=60))

    async def recover(self) -> list[Any]:
        """Nobody has died; each look begins here."""
        self.looks.append(self.clock.monotonic())
        return []

    async def look(self) -> Waiting:
        """Keys, or nothing."""
        return Waiting({}, bool(self.heads), {})

    async def walk(self, after: str, most: int) -> list[Head]:
        """The first of each key."""
        return [head for head in self.heads if head.key > after][:most]

    async def claim_heads(self, ids: list[int]) -> list[Claimed]:
        """Those that nobody else has had before."""
        self.asked.append(ids)
        self.heads = [head for head in self.heads if head.id not in ids]
        return [_claimed(id_) for id_ in ids if id_ not in self.others_have]


class Permits:
    """So many for one type."""

    def __init__(self, room: int) -> None:
        self.freed = asyncio.Event()
        self.room = room
        self.idle = True

    def handled(self, event_type: str) -> bool:  # noqa: ARG002 -- there is one
        """It has a handler."""
        return True

    def paused(self, event_type: str) -> bool:  # noqa: ARG002 -- there is one
        """It never is."""
        return False

    def shares(self, event_types: Iterable[str]) -> list[Share]:
        """All of it for each."""
        rooms = dict.fromkeys(event_types, self.room)
        return [Share(self.room, rooms)] if self.room and rooms else []


class Keeping:
    """Keeps nothing."""

    def hold(self, owned: Owned) -> None:
        """No lease ends here."""


def _claimed(id_: int) -> Claimed:
    owned = Owned(id=id_, event_type="order.paid", token="t", deadline=math.inf, attempt=1, alone=False)  # noqa: S106 -- no secret
    return Claimed(owned, Delivery(body=b"{}", attributes={}, message_id=str(id_), handle=owned))


@asynccontextmanager
async def claiming(
    table: FakeTable, permits: Permits, observe: Callable[[object], None], chance: float = 0.5
) -> AsyncIterator[None]:
    """It runs; of each spread, the jitter takes this share."""
    claims = Claiming(
        cast("Table", table),
        cast("Inbox", Keeping()),
        observe,
        table.clock,
        poll_seconds=POLL,
        jitter=lambda spread: spread * chance,
    )

    def take(deliveries: Iterable[Delivery]) -> None:
        permits.room -= len(list(deliveries))

    task = asyncio.create_task(claims.run(take, permits))
    await table.clock.advance(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.45), (0.5, 0.5), (1.0, 0.55)])
async def test_polls_of_several_processes_drift_apart_by_a_tenth(chance: float, pause: float) -> None:
    """To either side, so that the mean stays what was set."""
    table = FakeTable(FakeClock())
    async with claiming(table, Permits(3), lambda _: None, chance):
        await table.clock.advance(10 * pause)

    pauses = [after - before for before, after in zip(table.looks, table.looks[1:], strict=False)]
    assert len(pauses) >= 9
    assert pauses == pytest.approx([pause] * len(pauses), abs=1e-4)


async def test_what_another_process_had_first_is_counted_as_a_conflict() -> None:
    """Of five that were found free, two were gone when they were claimed."""
    told: list[ClaimMade] = []
    heads = [Head(f"k-{id_}", id_, "order.paid", ready=True, due_in=-1.0) for id_ in range(1, 6)]
    table = FakeTable(FakeClock(), heads, others_have={2, 4})

    def observe(event: object) -> None:
        assert isinstance(event, ClaimMade)
        told.append(event)

    async with claiming(table, Permits(10), observe):
        await table.clock.advance(1)

    assert [(each.way, each.wanted, each.found, each.conflicts) for each in told] == [("key", 5, 3, 2)]


async def test_no_more_is_asked_for_than_there_are_permits() -> None:
    """Of twenty keys that could go, three are claimed; the others are left to whoever has room."""
    heads = [Head(f"k-{id_:02}", id_, "order.paid", ready=True, due_in=-1.0) for id_ in range(20)]
    table, permits = FakeTable(FakeClock(), heads), Permits(3)
    async with claiming(table, permits, lambda _: None):
        await table.clock.advance(5)
        assert (permits.room, table.asked) == (0, [[0, 1, 2]])
        permits.room = 1
        permits.freed.set()
        await table.clock.advance(1)

    assert [len(ids) for ids in table.asked] == [3, 1]
