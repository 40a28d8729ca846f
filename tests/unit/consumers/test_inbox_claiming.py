"""What the claims of an inbox are made for, without a database."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from consumers.clock import SystemClock
from consumers.delivery import Delivery
from consumers.events import ClaimMade
from consumers.inbox.claiming import Claiming
from consumers.inbox.rows import Claimed, Head, Owned, Waiting
from consumers.inbox.table import Identity
from consumers.sources.source import Demand, Share
from consumers.testing.clock import FakeClock

POLL = 0.5


class Table:
    """Has a key whose first delivery ends while the keys are walked over; the next one is free behind that."""

    identity = Identity(consumer="billing", owner="test", lease_seconds=60)

    def __init__(self) -> None:
        self.walks = 0
        self.claimed = asyncio.Event()
        self.claiming: Claiming

    async def recover(self) -> list[Any]:
        """Nothing."""
        return []

    async def look(self) -> Waiting:
        """A key."""
        return Waiting(types={}, keyed=True, suspects={})

    async def walk(self, after: str, most: int) -> list[Head]:  # noqa: ARG002 -- it is one key
        """What was so when the statement began."""
        self.walks += 1
        self.claiming.ended("k", "order.paid", None)
        return [Head("k", 1, "order.paid", self.walks > 1, 0.0)]

    async def claim_heads(self, ids: list[int]) -> list[Claimed]:  # noqa: ARG002 -- it is one row
        """It is to be had."""
        self.claimed.set()
        return await asyncio.Future()


class Permits:
    """Enough."""

    room, idle = 1, True

    def __init__(self) -> None:
        self.freed = asyncio.Event()

    def handled(self, event_type: str) -> bool:  # noqa: ARG002 -- every one is
        """It is."""
        return True

    def paused(self, event_type: str) -> bool:  # noqa: ARG002 -- none is
        """It is not."""
        return False

    def shares(self, event_types: Iterable[str]) -> list[Share]:
        """One of each."""
        rooms = dict.fromkeys(event_types, self.room)
        return [Share(self.room, rooms)] if rooms and self.room > 0 else []


async def test_what_ends_during_a_walk_over_the_keys_is_walked_to_again() -> None:
    """At once: the next look is an hour away."""
    table = Table()
    table.claiming = Claiming(
        cast("Any", table), cast("Any", None), lambda _: None, SystemClock(), poll_seconds=3_600.0
    )
    running = asyncio.create_task(table.claiming.run(lambda _: None, cast("Demand", Permits())))
    try:
        async with asyncio.timeout(10):
            await table.claimed.wait()
    finally:
        running.cancel()
        await asyncio.wait([running])


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


class Room:
    """So many for each type."""

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
        return [Share(self.room, rooms)] if rooms and self.room > 0 else []


class Keeping:
    """Keeps nothing."""

    def hold(self, owned: Owned) -> None:
        """No lease ends here."""


def _claimed(id_: int) -> Claimed:
    owned = Owned(id=id_, event_type="order.paid", token="t", deadline=math.inf, attempt=1, alone=False)  # noqa: S106 -- no secret
    return Claimed(owned, Delivery(body=b"{}", attributes={}, message_id=str(id_), handle=owned))


@asynccontextmanager
async def claiming(
    table: FakeTable, permits: Room, observe: Callable[[object], None], chance: float = 0.5
) -> AsyncIterator[None]:
    """It runs; of each spread, the jitter takes this share."""
    claims = Claiming(
        cast("Any", table),
        cast("Any", Keeping()),
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
    async with claiming(table, Room(3), lambda _: None, chance):
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

    async with claiming(table, Room(10), observe):
        await table.clock.advance(1)

    assert [(each.way, each.wanted, each.found, each.conflicts) for each in told] == [("key", 5, 3, 2)]


async def test_no_more_is_asked_for_than_there_are_permits() -> None:
    """Of twenty keys that could go, of two types, three are claimed; the others are left to whoever has room."""
    types = ("order.paid", "order.sent")
    heads = [Head(f"k-{id_:02}", id_, types[id_ % 2], ready=True, due_in=-1.0) for id_ in range(20)]
    table, permits = FakeTable(FakeClock(), heads), Room(3)
    async with claiming(table, permits, lambda _: None):
        await table.clock.advance(5)
        assert (permits.room, table.asked) == (0, [[0, 1, 2]])
        permits.room = 1
        permits.freed.set()
        await table.clock.advance(1)

    assert [len(ids) for ids in table.asked] == [3, 1]


@dataclass
class Resting(FakeTable):
    """The first delivery of each key is due at some time."""

    due: dict[str, float] = field(default_factory=dict)

    async def walk(self, after: str, most: int) -> list[Head]:
        """As it is now."""
        now = self.clock.monotonic()
        due_in = {head.key: self.due[head.key] - now for head in self.heads}
        heads = [replace(head, ready=due_in[head.key] <= 0, due_in=due_in[head.key]) for head in self.heads]
        return [head for head in heads if head.key > after][:most]


async def test_the_first_of_a_key_that_rests_is_claimed_when_it_is_due_whatever_else_its_round_has_claimed() -> None:
    """Of more keys than are visited at once one may go, the others a tenth of a second later."""
    clock = FakeClock()
    heads = [Head(f"k-{id_:02}", id_, "order.paid", ready=False, due_in=0.0) for id_ in range(30)]
    due = {head.key: clock.monotonic() + (0.1 if head.id else 0.0) for head in heads}
    table = Resting(clock, heads, due=due)
    async with claiming(table, Room(2), lambda _: None):
        assert table.asked == [[0]]
        await clock.advance(0.11)
        assert table.asked == [[0], [1]]


async def test_what_is_due_before_a_round_ends_is_claimed_when_it_does() -> None:
    """For as long as there was no permit nobody looked any further."""
    clock = FakeClock()
    heads = [Head(f"k-{id_:02}", id_, "order.paid", ready=False, due_in=0.0) for id_ in range(30)]
    due = {head.key: clock.monotonic() + (0.0, 0.1, 60.0)[min(head.id, 2)] for head in heads}
    table, permits = Resting(clock, heads, due=due), Room(1)
    async with claiming(table, permits, lambda _: None):
        await clock.advance(0.6)
        assert table.asked == [[0]]
        permits.room = 1
        permits.freed.set()
        await clock.advance(0.01)
        assert table.asked == [[0], [1]]
