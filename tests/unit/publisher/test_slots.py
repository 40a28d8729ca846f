"""Units of work side by side: one slot, and more as they are asked for."""

import asyncio

import pytest

from relay.publisher.slots import More, side_by_side

PATIENCE = 60.0


def hanging() -> bool:
    """All that is under way waits for others."""
    return True


class Work:
    """Units that wait until they are let go, and are counted."""

    def __init__(self, units: int, slots: int = 1) -> None:
        self.slots = slots
        self.left = units
        self.under_way = self.most = self.ended = 0
        self.go, self.full = asyncio.Event(), asyncio.Event()

    async def unit(self, more: More) -> bool:
        """Ask for another slot, and wait."""
        if not self.left:
            return False
        self.left -= 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        more()
        if self.under_way == self.slots:
            self.full.set()
        await self.go.wait()
        self.under_way -= 1
        self.ended += 1
        return True


@pytest.mark.parametrize("slots", [1, 2, 5])
async def test_no_more_units_are_under_way_than_there_are_slots(slots: int) -> None:
    """And all of them are done."""
    work = Work(20)
    work.go.set()
    await side_by_side(slots, work.unit, PATIENCE, hanging)
    assert (work.ended, work.left) == (20, 0)
    waiting = Work(20, slots)
    task = asyncio.create_task(side_by_side(slots, waiting.unit, PATIENCE, hanging))
    await waiting.full.wait()
    waiting.go.set()
    await task
    assert waiting.most == slots


async def test_while_nobody_asks_there_is_one_slot() -> None:
    """It does everything."""
    slots = set()
    left = [True, True, False]

    async def unit(_: More) -> bool:
        slots.add(asyncio.current_task())
        return left.pop(0)

    await side_by_side(4, unit, PATIENCE, hanging)
    assert (len(slots), left) == (1, [])


async def test_what_others_have_begun_is_not_given_up_when_one_fails() -> None:
    """They end it, begin nothing more, and then the failure is raised."""
    ended: list[str] = []
    go = asyncio.Event()
    begun = 0

    async def unit(more: More) -> bool:
        nonlocal begun
        begun += 1
        if begun == 1:
            more()
            await go.wait()
            await asyncio.sleep(0)
            ended.append("first")
            return True
        go.set()
        raise OSError("second")

    with pytest.raises(OSError, match="second"):
        await side_by_side(2, unit, PATIENCE, hanging)
    assert (ended, begun) == (["first"], 2)


async def test_a_cancellation_cancels_all() -> None:
    """Nothing is under way after it."""
    work = Work(9, slots=3)
    task = asyncio.create_task(side_by_side(3, work.unit, PATIENCE, hanging))
    await work.full.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended == 0
    assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []


async def test_a_unit_that_was_cancelled_from_elsewhere_is_a_failure() -> None:
    """It does not look like an orderly end."""

    async def unit(_: More) -> bool:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await side_by_side(2, unit, PATIENCE, hanging)


async def test_where_nobody_ends_for_long_there_is_one_more_slot() -> None:
    """What hangs in one keeps nobody from what has come since; but there are no more slots than that."""
    hung = 0
    both = asyncio.Event()

    async def unit(_: More) -> bool:
        nonlocal hung
        hung += 1
        if hung == 2:
            both.set()
        await both.wait()
        return False

    await side_by_side(2, unit, 0.001, hanging)
    assert hung == 2


async def test_where_slots_are_at_work_there_is_no_further_one() -> None:
    """Another one would only have to wait for them."""
    begun = 0
    looked = asyncio.Event()

    def at_work() -> bool:
        looked.set()
        return False

    async def unit(_: More) -> bool:
        nonlocal begun
        begun += 1
        await looked.wait()
        return False

    await side_by_side(2, unit, 0.001, at_work)
    assert begun == 1


async def test_a_slot_that_had_not_begun_leaves_none_behind_when_it_is_cancelled() -> None:
    """The others have ended by the time that the cancellation is told."""
    ended: list[str] = []

    async def unit(more: More) -> bool:
        try:
            cancelled.cancel()
            more()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("first")
        return False

    cancelled = asyncio.create_task(side_by_side(2, unit, PATIENCE, hanging))
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert ended == ["first"]
