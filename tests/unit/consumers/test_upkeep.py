"""The upkeep of an inbox runs beside the work, and its failures end nothing."""

import asyncio
from typing import Any

from consumers.events import UpkeepFailed
from consumers.inbox.session import Session
from consumers.inbox.upkeep import Upkeep
from consumers.testing import FakeClock
from relay.kernel.runner import Budget, Pace, Report


class Runner:
    """Fails as often as it is told."""

    pace = Pace()

    def __init__(self, name: str, failures: int) -> None:
        self.name = name
        self.failures = failures
        self.passes = 0

    async def run_once(self, budget: Budget) -> Report:  # noqa: ARG002 -- as any runner takes it
        """Fail, or not."""
        self.passes += 1
        if self.passes <= self.failures:
            raise LookupError(self.name)
        return Report()

    async def close(self) -> None:
        """There is nothing to close."""


async def nowhere() -> Any:
    """There is no database here."""
    raise OSError("away")


async def test_a_runner_that_fails_is_told_of_and_goes_on_and_the_others_do_not_notice() -> None:
    """Whatever it raises."""
    clock, told = FakeClock(), list[object]()
    bad, good = Runner("bad", 2), Runner("good", 0)
    session = Session(nowhere, "public", lambda: 0.0)
    upkeep = Upkeep("billing", [bad, good], session, observe=told.append, clock=clock, jitter=lambda _: 0.0)
    running = asyncio.create_task(upkeep.run())
    for _ in range(4):
        await clock.advance(30)
    running.cancel()
    await asyncio.wait([running])

    assert bad.passes > 2
    assert good.passes > 2
    assert [(event.work, str(event.error)) for event in told if isinstance(event, UpkeepFailed)] == [
        ("bad", "bad"),
        ("bad", "bad"),
    ]
