"""The relay's side of the table, over as many connections as it has transactions open at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from relay.errors import NoFurtherSessionError
from relay.outbox.batch import Batch, Known
from relay.outbox.floors import Floors
from relay.outbox.order import Walk
from relay.outbox.statements import statement
from relay.postgres.statements import search_path
from relay.postgres.wire import COMMIT, Statement, Wire

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


class Outbox:
    """The table. Transactions may be open side by side; what one of them learns of the table, all of them know.

    Who moves rows inside of the database has statements beside the outbox's own, and rows that come without what they
    carry.
    """

    def __init__(  # noqa: PLR0913 -- what differs between relays, each by its name
        self,
        connect: Connect,
        schema: str,
        idle_tx_ms: int,
        skew: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        statement: Statement = statement,
        carries: bool = True,
    ) -> None:
        self._connect = connect
        self._statement = statement
        self._carries = carries
        self._enter = {
            "search_path": search_path(schema),
            "idle_tx_ms": str(idle_tx_ms),
        }
        self._skew = skew
        self._known = Known(Walk(), Floors(monotonic))
        self._free: list[Wire] = []
        self._open = 0  # sessions on which a transaction is open
        self._connecting = asyncio.Lock()

    @property
    def floors(self) -> Floors:
        """Where claims start."""
        return self._known.floors

    @property
    def has_session(self) -> bool:
        """Whether there is one on which no transaction is open."""
        return bool(self._free)

    def looking(self) -> bool:
        """Whether a transaction connects, begins or looks for rows: another one would have to wait for it."""
        return self._connecting.locked() or self._known.turn.locked()

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Open a transaction; the end of the block commits it, where settling has not.

        Raises NoFurtherSessionError where there is a session already, and none for another transaction.

        When the block or the commit raises, the outcome is unknown: the connection is dropped, with it every lock
        and all that was believed about the rows, and the next claim reads the truth.
        """
        wire = await self._wire()
        self._open += 1
        try:
            batch = Batch(wire, self._skew, self._known, carries=self._carries)
            try:
                yield batch
                if not batch.committed:
                    await wire.say(COMMIT)
            finally:
                batch.ended()
        except BaseException:  # a cancellation, too, may come while the outcome is unknown
            await wire.close()
            await self.close()  # what befell one session may await the others: a table that was altered, a failover
            raise
        finally:
            self._open -= 1
        self._free.append(wire)
        if batch.released:
            self.floors.released()

    async def close(self) -> None:
        """Drop the connections on which no transaction is open."""
        free, self._free = self._free, []
        self._forget()
        for wire in free:
            await wire.close()

    async def _wire(self) -> Wire:
        if wire := await self._had():
            return wire
        async with self._connecting:
            # One may have become free meanwhile.
            if wire := await self._had():
                return wire
            try:
                return Wire(await self._connect(), self._statement, self._enter)
            except Exception as error:
                if self._open or self._free:
                    raise NoFurtherSessionError(error) from error
                raise

    async def _had(self) -> Wire | None:
        """A session that is free, and has not ended."""
        while self._free:
            wire = self._free.pop()
            if not wire.ended:
                return wire
            self._forget()
            await wire.close()
        return None

    def _forget(self) -> None:
        """A connection is gone: believe nothing that was learned over it, or over another to the same server."""
        self._known.walk.restart()
        self.floors.restart()
