"""The clock of this machine, on an event loop whose time jumps."""

import asyncio
import time

from relay.kernel.clock import SystemClock
from tests.unit.kernel.fakes import in_fake_time


@in_fake_time
async def test_a_wait_ends_with_its_time() -> None:
    """Nothing happened: false, after exactly the seconds asked for."""
    began = asyncio.get_running_loop().time()

    assert not await SystemClock().wait(asyncio.Event(), 30)

    assert asyncio.get_running_loop().time() - began == 30


@in_fake_time
async def test_a_wait_ends_with_its_event() -> None:
    """An event that comes cuts it short, one that has come prevents it."""
    event = asyncio.Event()
    began = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(2, event.set)

    assert await SystemClock().wait(event, 30)
    assert asyncio.get_running_loop().time() - began == 2

    assert await SystemClock().wait(event, 30)
    assert asyncio.get_running_loop().time() - began == 2


def test_it_never_runs_backwards() -> None:
    """It counts with the machine's monotonic clock, not with the time of day; also where no event loop is."""
    before = time.monotonic()

    assert before <= SystemClock().monotonic() <= time.monotonic()
