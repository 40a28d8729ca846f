"""Whether the inbox answers those who ask it again and again: told when it does not, and when it does again."""

import asyncio
from typing import Final

from consumers.clock import Clock
from consumers.events import InboxAway, InboxBack
from idempotency import StoreUnavailableError
from relay.kernel.backoff import Backoff, Delay, Jitter, uniform
from relay.kernel.observe import Observe

_PAUSE: Final = Delay(first=0.25, most=5.0, jitter=0.25)


class Outage:
    """That of one operation of one consumer; each has its own, for one may work again while another does not yet."""

    def __init__(self, consumer: str, operation: str, observe: Observe, clock: Clock, jitter: Jitter = uniform) -> None:
        self._consumer = consumer
        self._operation = operation
        self._observe = observe
        self._clock = clock
        self._backoff = Backoff(_PAUSE, jitter)
        self._since: float | None = None
        self._never = asyncio.Event()

    async def wait(self, error: StoreUnavailableError) -> None:
        """It was asked in vain: return when it is time to ask again."""
        pause = self._backoff.next()
        if self._since is None:
            self._since = self._clock.monotonic()
        self._observe(InboxAway(self._consumer, self._operation, error, pause))
        await self._clock.wait(self._never, pause)

    def over(self) -> None:
        """It has answered."""
        if self._since is not None:
            away, self._since = self._clock.monotonic() - self._since, None
            self._backoff.reset()
            self._observe(InboxBack(self._consumer, self._operation, away))
