"""Straight out of an outbox: rows are claimed as a relay claims them, and moved on inside of the database."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from consumers.errors import ConfigurationError
from consumers.events import WakeUpLost
from consumers.sharding import shard_of
from consumers.sources.neighbours import Kept
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.failure import told
from relay.kernel.observe import Observe
from relay.outbox import schema as outbox_schema
from relay.outbox.events import ListenLost
from relay.outbox.listening import Listening
from relay.outbox.outbox import Outbox
from relay.outbox.rows import MOVED, Claimed
from relay.outbox.sleep import Sleeper
from relay.outbox.statements import statement as of_outbox
from relay.postgres.statements import numbers, search_path, texts

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]

# Rows of each kind in one transaction, and what they take: the database writes that much again.
MOST_ROWS: Final = 1_000
_MOST_BYTES: Final = 4_000_000
# A process that hangs loses its transaction after so long, and with it the locks.
_IDLE_TRANSACTION_MS: Final = 20_000
# The longest time between two looks of one that sleeps.
_IDLE_SECONDS: Final = 30.0
_MOVE: Final = "move"
_AWAY = (psycopg.Error, OSError, relay_errors.RelayError)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one transaction came to."""

    events: int
    """That left the outbox."""
    kept: Sequence[Kept]
    subscribed: bool
    """Whether the consumer that moves was a subscriber itself; if not, nothing was moved."""
    more: bool
    """Whether there may be more to move at once."""


@dataclass(frozen=True, slots=True)
class _Statements:
    """The outbox's own, and the one that moves."""

    move: bytes

    def __call__(self, name: str) -> bytes:
        return self.move if name == _MOVE else of_outbox(name)


class OutboxFeed:
    """The outbox of a database, for whoever stands in for a relay; `statement` moves what was claimed."""

    def __init__(self, connect: Connect, schema: str, statement: bytes, *, consumer: str, observe: Observe) -> None:
        self._connect = connect
        self._schema = schema
        self._consumer = consumer
        self._observe = observe
        self._outbox = Outbox(connect, schema, _IDLE_TRANSACTION_MS, statement=_Statements(statement), carries=False)
        self._sleeper = Sleeper(self._listen, self._outbox.floors, _IDLE_SECONDS, self._heard)
        self._never = asyncio.Event()
        self._moved_in_round = False  # since the claims began to come by the keys

    async def examine(self) -> bool:
        """Whether somebody has sent events of this outbox to a broker lately.

        Raises ConfigurationError where it is no outbox that this code works on, StoreUnavailableError where it is away.
        """
        try:
            connection = await self._connect()
            try:
                await outbox_schema.require(connection, self._schema)
                async with connection.transaction():
                    await connection.execute(of_outbox("doctor_enter"), {"search_path": search_path(self._schema)})
                    cursor = await connection.execute(of_outbox("doctor_went"), {"moved": MOVED})
                    ((_, to_broker),) = await cursor.fetchall()
            finally:
                await connection.close()
        except relay_errors.SchemaError as error:
            raise ConfigurationError(str(error)) from error
        except _AWAY as error:
            raise StoreUnavailableError(f"the outbox was not reached: {told(error)}") from error
        return bool(to_broker)

    async def move(self) -> Pass:
        """Claim what is due, and move it, in one transaction; raises StoreUnavailableError where that failed."""
        try:
            async with self._outbox.batch() as batch:
                claim = await batch.claim(MOST_ROWS, _MOST_BYTES)
                rows = await batch.hand_over(_MOVE, self._values(claim.rows)) if claim.rows else []
        except _AWAY as error:
            raise StoreUnavailableError(f"the outbox was not reached: {told(error)}") from error
        kept = [Kept(name, event_type, key or "", count) for name, event_type, key, count in rows if name is not None]
        moved = sum(count for name, *_, count in rows if name is None)
        if moved < 0:
            self._outbox.floors.released()  # as they were: the next claim is to find them
        # Where all keys were seen and what is left is somebody else's, the next claim would find nothing either.
        worked = moved > 0 or self._moved_in_round
        self._moved_in_round = worked and claim.unseen
        more = claim.unseen or (claim.full and worked)
        return Pass(max(moved, 0), kept, subscribed=moved >= 0, more=more)

    async def rest(self, seconds: float, *, worked: int) -> None:
        """Return when something was stored, or after so many seconds where nobody would tell."""
        await self._sleeper.rest(self._never, seconds, worked=worked)

    async def close(self) -> None:
        """Let go of its connections."""
        await self._sleeper.close()
        await self._outbox.close()

    def _values(self, rows: Sequence[Claimed]) -> Mapping[str, object]:
        return {
            "consumer": self._consumer,
            "moved": MOVED,
            "ids": numbers(row.id for row in rows),
            "shards": numbers(shard_of(row.aggregate_id or row.event_id) for row in rows),
            "types": texts(sorted({row.event_type for row in rows})),
            "expected": len(rows),
        }

    async def _listen(self) -> Listening:
        return await Listening.open(self._connect, self._connect, self._schema)

    def _heard(self, event: object) -> None:
        if isinstance(event, ListenLost):
            self._observe(WakeUpLost(self._consumer, event.error, event.again_in_seconds))
