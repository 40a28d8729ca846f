"""What waits in the outbox, what failed, and of what: looked at without a lock, and in bounded time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import args_row, class_row, dict_row

from relay.outbox.statements import statement
from relay.postgres.statements import search_path

# Where counting ends, and how many keys are walked.
COUNT_LIMIT = 100_000
KEY_LIMIT = 10_000


class Keys(NamedTuple):
    """What waits in ordering keys; a count that equals its limit means so many or more."""

    due: int  # rows before which nothing of their key waits that is not due itself
    later: int  # rows that wait for the next attempt of a row of their key, that row included
    behind: int  # rows that wait behind a failed row, until it is retried or discarded
    blocked: int  # keys in which they do
    is_least: bool  # more rows may hold up their key than were looked at: of each of the above there may be more
    more_keys: bool  # there are more keys than were walked: one of those may have waited for longer
    oldest_due_seconds: float
    oldest_blocked_seconds: float  # since the first of the rows failed behind which a key waits; 0 without any


class Queue(NamedTuple):
    """One look at the outbox; a count that equals its limit means so many or more."""

    fresh: int
    delayed_due: int  # scheduled or put off, and due
    scheduled: int  # later
    retrying: int  # pending, with a failed attempt
    max_attempts: int  # failed, and not discarded
    non_retryable: int  # the same
    blocking: int  # of the failed: those behind which their key waits
    failed_last_hour: int
    oldest_unordered_seconds: float
    keys: Keys

    @property
    def ordered(self) -> int:
        """Pending rows with an ordering_key."""
        return self.keys.due + self.keys.later + self.keys.behind

    @property
    def due(self) -> int:
        """Rows that could be published now."""
        return self.fresh + self.delayed_due + self.keys.due

    @property
    def pending(self) -> int:
        """Rows that are neither published nor failed."""
        return self.fresh + self.delayed_due + self.scheduled + self.ordered

    @property
    def failed(self) -> int:
        """Failed rows about which nobody has decided."""
        return self.max_attempts + self.non_retryable

    @property
    def oldest_due_seconds(self) -> float:
        """Since the first of the due rows was there and due; 0 without any."""
        return max(self.oldest_unordered_seconds, self.keys.oldest_due_seconds)


class BlockedKey(NamedTuple):
    """A key that waits behind a failed row."""

    ordering_key: str
    id: int  # of the failed row, as are the next five
    event_id: str
    event_type: str
    code: str
    failure_reason: str
    failed_at: str
    behind: int  # pending rows that wait behind it
    behind_is_least: bool  # there may be more


class Cause(NamedTuple):
    """What rows of one topic fail of."""

    state: str  # failed | retrying
    code: str
    topic: str
    rows: int


class LastAction(NamedTuple):
    """What an operator did last."""

    action: str
    acted_at: str
    acted_by: str
    why: str | None
    rows: int


class Counters(NamedTuple):
    """What Postgres counted of the table, and when it was asked."""

    inserted: int
    updated: int
    at: float
    may_read_actions: bool


@asynccontextmanager
async def operating(connection: psycopg.AsyncConnection[Any], schema: str) -> AsyncIterator[None]:
    """Open a transaction of an operator's command."""
    async with connection.transaction():
        await connection.execute(statement("operate_enter"), {"search_path": search_path(schema)})
        yield


async def look(connection: psycopg.AsyncConnection[Any], schema: str, most: int = COUNT_LIMIT) -> Queue:
    """Count what waits and what failed."""
    async with operating(connection, schema):
        return await counted(connection, most)


async def counted(connection: psycopg.AsyncConnection[Any], most: int) -> Queue:
    """The same within a transaction that the caller has opened."""
    keys = connection.cursor(row_factory=class_row(Keys))
    await keys.execute(statement("keys"), {"most": most, "keys": KEY_LIMIT})
    rows = connection.cursor(row_factory=dict_row)
    await rows.execute(statement("queue"), {"most": most})
    return Queue(**(await rows.fetchall())[0], keys=(await keys.fetchall())[0])


async def blocked_keys(connection: psycopg.AsyncConnection[Any], schema: str, shown: int) -> list[BlockedKey]:
    """The keys that wait behind a failed row, those with most rows waiting first."""
    async with operating(connection, schema):
        cursor = connection.cursor(row_factory=args_row(BlockedKey))
        await cursor.execute(statement("blocked_keys"), {"most": COUNT_LIMIT, "keys": KEY_LIMIT, "shown": shown})
        return await cursor.fetchall()


async def causes(
    connection: psycopg.AsyncConnection[Any], schema: str, routing: Mapping[str, Any], most: int, shown: int
) -> list[Cause]:
    """What the newest failed and retrying rows failed of, by code and topic."""
    async with operating(connection, schema):
        cursor = connection.cursor(row_factory=args_row(Cause))
        await cursor.execute(statement("errors"), {**routing, "most": most, "shown": shown})
        return await cursor.fetchall()


async def counters(connection: psycopg.AsyncConnection[Any], schema: str) -> Counters:
    """What Postgres has counted so far."""
    async with operating(connection, schema):
        cursor = connection.cursor(row_factory=args_row(Counters))
        await cursor.execute(statement("counters"))
        (found,) = await cursor.fetchall()
    return found


async def last_action(connection: psycopg.AsyncConnection[Any], schema: str) -> LastAction | None:
    """The newest of outbox_actions."""
    async with operating(connection, schema):
        cursor = connection.cursor(row_factory=args_row(LastAction))
        await cursor.execute(statement("last_action"), {"most": COUNT_LIMIT})
        return await cursor.fetchone()
