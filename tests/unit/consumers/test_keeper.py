"""Leases of a process are renewed together, and their ends are told in time."""

import asyncio
from collections.abc import Sequence

import pytest

from consumers.dedup.keeper import Keeper, Renewed
from tests.unit.kernel.fakes import FakeClock, in_fake_time


@pytest.mark.parametrize("deadline", [60.0, 60.01, 60.049])
@in_fake_time
async def test_the_end_of_a_lease_is_told_to_the_moment_although_a_renewal_hangs(deadline: float) -> None:
    """The store does not answer, and others may have what was held from then on."""
    clock, lost = FakeClock(), list[float]()

    async def hang(held: Sequence[str]) -> Sequence[Renewed]:
        await asyncio.sleep(600)
        return [None] * len(held)

    keeper = Keeper[str](hang, clock, every=15.0, now=clock.monotonic)
    began = clock.monotonic()
    keeper.keep("a", began + deadline)
    keeper.start(lambda _: lost.append(clock.monotonic() - began))
    await asyncio.sleep(100)
    await keeper.close()
    assert lost == [pytest.approx(deadline, abs=1e-6)]
