"""The relay's side of the table: claim rows in a transaction, settle them in the same one, commit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import args_row

from relay.errors import InvariantError
from relay.outbox.statements import search_path, statement

# Written out, on a connection in autocommit mode: so they travel together with what they surround.
BEGIN = "begin isolation level read committed"
COMMIT = "commit"

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]


class Claimed(NamedTuple):
    """A row that this transaction has locked, as the message needs it."""

    id: int
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    topic: str | None
    body: bytes
    attributes: str | None  # as JSON: a row written by hand may hold what no parser takes
    size_bytes: int
    created_at: str
    attempt_count: int


class Accepted(NamedTuple):
    """The broker has taken the row's message, on this topic."""

    id: int
    message_id: str
    topic: str


class Refused(NamedTuple):
    """The row can never become a message."""

    id: int
    code: str
    error: str


class Claim(NamedTuple):
    """What one claim found; `full` when it may have left more behind."""

    rows: list[Claimed]
    full: bool


class Batch:
    """One open transaction on the outbox."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], enter: dict[str, str], skew: float) -> None:
        self._connection = connection
        self._enter = enter
        self._skew = skew

    async def claim(self, rows: int, size_bytes: int) -> Claim:
        """Lock up to `rows` fresh and as many due rows, each kind bounded in bytes too."""
        limits = {"rows": rows, "bytes": size_bytes, "skew": self._skew}
        fresh = self._connection.cursor(binary=True, row_factory=args_row(Claimed))
        delayed = self._connection.cursor(binary=True, row_factory=args_row(Claimed))
        async with self._connection.pipeline():
            await self._connection.execute(BEGIN)
            await self._connection.execute(statement("enter"), self._enter)
        # Not in the pipeline, whose last word is a Flush: after one, Postgres does not end an idle transaction, and
        # a relay that froze there would keep what it has locked.
        await fresh.execute(statement("claim_fresh"), limits)
        await delayed.execute(statement("claim_delayed"), limits)
        found = [await fresh.fetchall(), await delayed.fetchall()]
        full = any(len(kind) >= rows or sum(row.size_bytes for row in kind) >= size_bytes for kind in found)
        return Claim(found[0] + found[1], full)

    async def settle(self, accepted: Sequence[Accepted], refused: Sequence[Refused]) -> None:
        """Mark what the broker took and what can never go out; one statement each, whatever their number."""
        if accepted:
            ids, message_ids, topics = map(list, zip(*accepted, strict=True))
            await self._mark("settle_published", len(ids), {"ids": ids, "message_ids": message_ids, "topics": topics})
        if refused:
            ids, codes, errors = map(list, zip(*refused, strict=True))
            await self._mark("settle_failed", len(ids), {"ids": ids, "codes": codes, "errors": errors})

    async def _mark(self, name: str, expected: int, values: dict[str, Any]) -> None:
        marked = await self._connection.execute(statement(name), values)
        if marked.rowcount != expected:
            raise InvariantError(
                f"{name} marked {marked.rowcount} of {expected} rows although this transaction holds their locks; "
                "it is rolled back and the rows are claimed again"
            )


class Outbox:
    """The table, over one connection at a time."""

    def __init__(self, connect: Connect, schema: str, idle_tx_ms: int, skew: float = 0.0) -> None:
        self._connect = connect
        self._enter = {
            "search_path": search_path(schema),
            "idle_tx_ms": str(idle_tx_ms),
        }
        self._skew = skew
        self._connection: psycopg.AsyncConnection[Any] | None = None

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Open a transaction; the end of the block commits it.

        When the block or the commit raises, the outcome is unknown: the connection is dropped, with it every lock
        and all that was believed about the rows, and the next claim reads the truth.
        """
        if self._connection is None:
            self._connection = await self._connect()
        connection = self._connection
        try:
            yield Batch(connection, self._enter, self._skew)
            await connection.execute(COMMIT)
        except BaseException:  # a cancellation, too, may come while the outcome is unknown
            await self.close()
            raise

    async def close(self) -> None:
        """Drop the connection; the server rolls back what it had open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
