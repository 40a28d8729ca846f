"""A session that hears which deliveries have come to their end, for as long as it lasts; then the next one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import psycopg

from consumers.inbox.session import Connect, statement
from relay.errors import RelayError
from relay.kernel.backoff import Backoff, Delay
from relay.kernel.clock import Clock
from relay.kernel.failure import told

_AWAY: Final = Delay(first=0.25, most=5.0, jitter=0.25)
_LOG: Final = logging.getLogger(__name__)


class WakeUp:
    """Calls `hear` with the id of each delivery that ends, and with None where some may have ended unheard."""

    def __init__(self, connect: Connect, hear: Callable[[int | None], None], clock: Clock) -> None:
        self._connect = connect
        self._hear = hear
        self._clock = clock
        self._backoff = Backoff(_AWAY)
        self._never = asyncio.Event()
        self._deaf = False

    async def run(self) -> None:
        """Listen until cancelled, or where a pooler gives away what was said to it."""
        while True:
            try:
                connection = await self._connect()
                # Whoever has a session only for a transaction would leave the LISTEN to its next user.
                if connection.prepare_threshold is None:
                    await connection.close()
                    self._tell("there is a pooler between; name one that leads past it as listen_url")
                    return
                async with connection:
                    await self._listen(connection)
            except (psycopg.Error, OSError, RelayError) as error:
                self._tell(told(error))
            await self._clock.wait(self._never, self._backoff.next())

    async def _listen(self, connection: psycopg.AsyncConnection[object]) -> None:
        await connection.execute(statement("listen"))
        self._backoff.reset()
        if self._deaf:
            self._deaf = False
            _LOG.info("waiting is woken up by the database again")
        self._hear(None)
        async for notification in connection.notifies():
            if notification.payload.isdecimal():
                self._hear(int(notification.payload))

    def _tell(self, why: str) -> None:
        if not self._deaf:
            self._deaf = True
            _LOG.warning("waiting is not woken up by the database, and looks by itself: %s", why)
