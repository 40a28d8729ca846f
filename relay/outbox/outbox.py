"""The relay's side of the table: claim rows in a transaction, settle them in the same one, commit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg.rows import args_row

from relay.errors import InvariantError
from relay.outbox.statements import search_path, statement

# Written out, on a connection in autocommit mode: so they travel together with what they surround.
BEGIN = "begin isolation level read committed"
COMMIT = "commit"

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]

# Why a row is out of the claim for good. An operator may discard it later.
Reason = Literal["max_attempts", "non_retryable"]


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


class Charged(NamedTuple):
    """The row pays with an attempt. With a reason it failed for good; without one it comes again after the delay."""

    id: int
    code: str
    error: str
    reason: Reason | None
    delay_seconds: float


class Claim(NamedTuple):
    """What one claim found; `full` when it may have left more behind."""

    rows: list[Claimed]
    full: bool


class Place(NamedTuple):
    """Where a row stands in its topic: fresh rows by id, then the others by the time from which they are due."""

    available_at: str
    id: int


START = Place("-infinity", 0)


class Candidates(NamedTuple):
    """What one look for probes found: rows of the topic that are due, and those of them that could be locked."""

    rows: list[Claimed]
    seen: int
    last: Place  # where the next look goes on


class Batch:
    """One open transaction on the outbox."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], enter: dict[str, str], skew: float) -> None:
        self._connection = connection
        self._enter = enter
        self._skew = skew
        self._begun = False

    async def claim(
        self, rows: int, size_bytes: int, open_topics: Sequence[str] = (), open_types: Sequence[str] = ()
    ) -> Claim:
        """Lock up to `rows` fresh and as many due rows, each kind bounded in bytes too.

        Rows that name one of the open topics, or name none and are of one of the types, stay where they are and do not
        count.
        """
        limits = {
            "rows": rows,
            "bytes": size_bytes,
            "skew": self._skew,
            "open_topics": list(open_topics),
            "open_types": list(open_types),
        }
        fresh = self._connection.cursor(binary=True, row_factory=args_row(Claimed))
        delayed = self._connection.cursor(binary=True, row_factory=args_row(Claimed))
        await self._begin()
        await fresh.execute(statement("claim_fresh"), limits)
        await delayed.execute(statement("claim_delayed"), limits)
        found = [await fresh.fetchall(), await delayed.fetchall()]
        full = any(len(kind) >= rows or sum(row.size_bytes for row in kind) >= size_bytes for kind in found)
        return Claim(found[0] + found[1], full)

    async def candidates(self, topic: str, types: Sequence[str], after: Place) -> Candidates:
        """Lock up to three rows of a topic: the oldest, the next after a place, the newest.

        They name the topic, or name none and are of one of the types.
        """
        await self._begin()
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(
            statement("claim_probes"),
            {
                "topic": topic,
                "types": list(types),
                "after_time": after.available_at,
                "after_id": after.id,
                "skew": self._skew,
            },
        )
        found = await cursor.fetchall()
        rows = [Claimed(*columns) for *columns, held, _, _ in found if held]
        next_places = [Place(time, row_id) for *_, time, row_id in found if row_id is not None]
        # Beyond the newest the next look begins anew.
        return Candidates(rows, len(found), next_places[0] if next_places else START)

    async def controls(
        self, topic: str, types: Sequence[str], beyond: int, rows: int, size_bytes: int
    ) -> list[Claimed]:
        """Lock the newest fresh rows of a topic beyond an id, each of at most these bytes, the newest first."""
        limits = {"topic": topic, "types": list(types), "beyond": beyond, "rows": rows, "bytes": size_bytes}
        cursor = self._connection.cursor(binary=True, row_factory=args_row(Claimed))
        await cursor.execute(statement("claim_controls"), limits)
        return await cursor.fetchall()

    async def settle(self, accepted: Sequence[Accepted], charged: Sequence[Charged]) -> None:
        """Mark what the broker took and who pays for what it did not; one statement each, whatever their number."""
        if accepted:
            ids, message_ids, topics = map(list, zip(*accepted, strict=True))
            await self._mark("settle_published", len(ids), {"ids": ids, "message_ids": message_ids, "topics": topics})
        if charged:
            ids, codes, errors, reasons, delays = map(list, zip(*charged, strict=True))
            values = {"ids": ids, "codes": codes, "errors": errors, "reasons": reasons, "delays": delays}
            await self._mark("settle_charged", len(ids), {**values, "skew": self._skew})

    async def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        async with self._connection.pipeline():
            await self._connection.execute(BEGIN)
            await self._connection.execute(statement("enter"), self._enter)
        # What locks is not in the pipeline, whose last word is a Flush: after one, Postgres does not end an idle
        # transaction, and a relay that froze there would keep what it has locked.

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
