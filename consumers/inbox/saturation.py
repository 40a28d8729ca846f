"""Whether handlers wait for connections that others have: told when it lasts, and when it is over."""

import asyncio
from collections.abc import Callable
from typing import Final

from consumers.backlog import Spent
from consumers.clock import Clock
from consumers.events import ConnectionsFree, ConnectionsSpent
from relay.kernel.observe import Observe

# Between two looks, which ask nobody. What waits at two of them in a row has waited for longer than a moment.
LOOK_SECONDS: Final = 1.0


class Saturation:
    """That of the connections of one consumer."""

    def __init__(self, consumer: str, most: int, spent: Callable[[], Spent], observe: Observe, clock: Clock) -> None:
        self._consumer = consumer
        self._most = most
        self._spent = spent
        self._observe = observe
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        never, waited, since = asyncio.Event(), False, None
        while True:
            await self._clock.wait(never, LOOK_SECONDS)
            waiting = self._spent().waiting
            if waiting and waited and since is None:
                since = self._clock.monotonic()
                self._observe(ConnectionsSpent(self._consumer, self._most, waiting))
            if not waiting and since is not None:
                self._observe(ConnectionsFree(self._consumer, self._clock.monotonic() - since))
                since = None
            waited = bool(waiting)
