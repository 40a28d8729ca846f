"""What one batch keeps from another, and must not: a place beside it, its rows, the end of a pass with work left."""

import asyncio

from relay.publisher.slots import More, side_by_side


async def test_a_slot_that_has_ended_leaves_its_place_to_another() -> None:
    """Also while the first one, which was there before it, goes on."""
    first: list[asyncio.Task[None] | None] = []
    beside: list[int] = []
    rounds = 0

    async def unit(more: More) -> bool:
        nonlocal rounds
        first.append(asyncio.current_task())
        if first[0] is not first[-1]:
            beside.append(rounds)
            return False
        more()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rounds += 1
        return rounds < 5

    await side_by_side(2, unit)
    assert beside == [0, 1, 2, 3, 4]
