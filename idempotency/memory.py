"""The store in the memory of this process, for tests."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar, Unpack

from idempotency.call import Call
from idempotency.errors import IdempotencyError
from idempotency.examination import life_warnings
from idempotency.settings import DEFAULTS, Overrides, Settings, overridden
from idempotency.simulation import Simulation
from idempotency.store import Store

_T = TypeVar("_T")


class MemoryManager(Store):
    """A store for the tests of those who use one: what `Manager` promises, without a Redis and in this process only.

    What expires does so by `clock`, so a clock that the test moves makes leases run out and marks be forgotten.
    """

    def __init__(
        self,
        settings: Settings = DEFAULTS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        **overrides: Unpack[Overrides],
    ) -> None:
        super().__init__(overridden(settings, overrides), clock=clock, sleep=sleep, chance=chance)
        self._simulation = Simulation(clock)

    async def ask(self, call: Call[_T]) -> list[_T | IdempotencyError]:
        """Carry a call out, and answer for each of its events."""
        sent_at = self.clock()
        await asyncio.sleep(0)  # others have their turn, as while a server is asked: races show in tests
        return call.whole(call.answers(self._simulation.run(call), sent_at) if call.items else [])

    async def examine(self, retention: timedelta | None = None) -> list[str]:
        """What endangers the promise: a life of marks that is too short. That the memory goes is in the name."""
        return life_warnings(self.settings, retention)
