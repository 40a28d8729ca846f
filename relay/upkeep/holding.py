"""The lock of a job, on a connection of its own: whoever has it knows within seconds that it is lost."""

import asyncio
from typing import Final, Self

import psycopg

from relay.kernel.clock import Clock
from relay.postgres.answering import answered, cut
from relay.postgres.statements import search_path
from relay.postgres.wire import Wire
from relay.upkeep.run import Connect
from relay.upkeep.statements import STATEMENT_SECONDS, statement

LOCK: Final = "worker:scheduler:"
# The connection is asked so often whether it is there, and has so long to answer.
PING_SECONDS: Final = 5.0
# The end of a run waits no longer for the end of its lock: the end of its connection is the lock's as well.
_RELEASE_SECONDS: Final = 1.0


class Holding:
    """A job's lock that is held: by a transaction that writes nothing, and ends with the connection."""

    def __init__(self, connection: psycopg.AsyncConnection[object], wire: Wire, clock: Clock) -> None:
        self._connection = connection
        self._wire = wire
        self._clock = clock

    @classmethod
    async def take(cls, connect: Connect, schema: str, job: str, clock: Clock) -> Self | None:
        """Take the lock; None where somebody has it. Raises what connecting and asking may raise."""
        connection = await connect()
        try:
            enter = {"search_path": search_path(schema), "statement_ms": str(round(STATEMENT_SECONDS * 1000))}
            wire = Wire(connection, statement, enter)
            asking = wire.say(*wire.begin(), wire.call("lock_take", {"lock": LOCK + job}))
            answers = await answered(connection, asking, PING_SECONDS)
            if answers[-1] == [(True,)]:
                return cls(connection, wire, clock)
        except BaseException:  # a cancellation, too, leaves no session behind
            await connection.close()
            raise
        await connection.close()
        return None

    async def lost(self) -> BaseException:
        """Return when the connection is no more, with what it was lost by; the lock is anybody's then."""
        while True:
            try:
                await self._quiet()
                await answered(self._connection, self._wire.say("select 1"), PING_SECONDS)
            except (psycopg.Error, OSError) as error:  # a TimeoutError is one
                cut(self._connection)
                return error

    async def release(self) -> None:
        """Let go of the lock, in whatever state the connection is."""
        try:
            await answered(self._connection, self._wire.say("rollback"), _RELEASE_SECONDS)
        except (psycopg.Error, OSError):
            cut(self._connection)  # and with it the server ends the transaction
        finally:
            await self._connection.close()

    async def _quiet(self) -> None:
        """Return when it is time to ask, or at once when something arrives unasked: as a rule, the end."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        socket = self._connection.fileno()
        loop.add_reader(socket, arrived.set)
        try:
            await self._clock.wait(arrived, PING_SECONDS)
        finally:
            loop.remove_reader(socket)
