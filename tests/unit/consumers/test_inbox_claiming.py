"""What the claims of an inbox are made for, without a database."""

import asyncio
from typing import Any, cast

from consumers.clock import SystemClock
from consumers.inbox.claiming import Claiming
from consumers.inbox.rows import Claimed, Head, Waiting
from consumers.sources.source import Demand, Share


class Table:
    """Has a key whose first delivery ends while the keys are walked over; the next one is free behind that."""

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

    def shares(self, event_types: Any) -> list[Share]:
        """One of each."""
        rooms = dict.fromkeys(event_types, 1)
        return [Share(sum(rooms.values()), rooms)] if rooms else []


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
