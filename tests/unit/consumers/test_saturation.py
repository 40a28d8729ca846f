"""Handlers that wait for a connection are told of when it lasts, and not for a moment."""

import asyncio

import pytest

from consumers.backlog import Spent
from consumers.events import ConnectionsFree, ConnectionsSpent
from consumers.inbox.saturation import Saturation
from consumers.testing import FakeClock


class Pool:
    """As busy as a test says."""

    waiting = 0

    def __call__(self) -> Spent:
        """How it is."""
        return Spent(2, self.waiting)


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        ([0, 3, 0, 2, 0, 0], []),
        ([0, 3, 2, 4, 0, 0], [ConnectionsSpent("billing", 2, 2), ConnectionsFree("billing", 2.0)]),
        (
            [1, 1, 0, 1, 1],
            [ConnectionsSpent("billing", 2, 1), ConnectionsFree("billing", 1.0), ConnectionsSpent("billing", 2, 1)],
        ),
    ],
)
async def test_whoever_waits_for_longer_than_a_moment_is_told_of_once(waiting: list[int], told: list[object]) -> None:
    """And that it is over, too."""
    clock, pool, seen = FakeClock(), Pool(), list[object]()
    looking = asyncio.create_task(Saturation("billing", 2, pool, seen.append, clock).run())
    for pool.waiting in waiting:
        await clock.advance(1)
    looking.cancel()
    await asyncio.wait([looking])
    assert seen == told
