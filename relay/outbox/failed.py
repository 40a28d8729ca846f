"""Failed rows: choose them, read them, retry or discard them, each action with its record in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.rows import args_row, dict_row

from relay.errors import OperateError
from relay.outbox import actions
from relay.outbox.actions import Change, Operator
from relay.outbox.queue import COUNT_LIMIT, operating
from relay.outbox.statements import statement

DISCARDED = "discarded"


class Action(Enum):
    """What an operator can do to a failed row."""

    RETRY = "retry"
    DISCARD = "discard"

    def fits(self, row: "Row") -> bool:
        """Whether it can be done to the row as it was read: one that failed, and is not given up a second time.

        What was redacted has nothing left that could be published.
        """
        given_up = self is Action.DISCARD and row.failure_reason == DISCARDED
        return row.failed_at is not None and not row.redacted and not given_up


@dataclass(frozen=True, slots=True)
class Filter:
    """Which failed rows are meant; None leaves a field open. Discarded ones are meant only by their reason."""

    type: str | None = None
    topic: str | None = None
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    ordering_key: str | None = None
    reason: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Named(NamedTuple):
    """Rows by what they are called."""

    ids: Sequence[int]
    event_ids: Sequence[UUID]


class Cursor(NamedTuple):
    """Where a page ends."""

    failed_at: str
    id: int


START = Cursor("-infinity", 0)


class Row(NamedTuple):
    """What is listed of a row; never its payload."""

    id: int
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    topic: str  # where it goes, or would
    ordering_key: str | None
    blocks_key: bool  # the later rows of its key wait behind it
    created_at: str
    failed_at: str | None
    failure_reason: str | None
    attempt_count: int
    last_error_code: str | None
    last_error: str | None
    redacted: bool  # `relay forget --redact` emptied it


class FailedRows:
    """The failed rows of an outbox, over one connection in autocommit mode. `routing` says where rows go."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], schema: str, routing: Mapping[str, Any]) -> None:
        self._connection = connection
        self._schema = schema
        self._routing = routing

    async def start(self) -> actions.Start:
        """Begin a command."""
        return await actions.start(self._connection, self._schema)

    async def page(self, wanted: Filter, rows: int, after: Cursor = START) -> list[Row]:
        """The next rows that are meant, in the order in which they failed."""
        values = {name: getattr(wanted, name) for name in wanted.__dataclass_fields__}
        return await self._rows(
            "failed_page",
            {
                **values,
                "discarded": wanted.reason == DISCARDED,
                "rows": rows,
                "after_time": after.failed_at,
                "after_id": after.id,
            },
        )

    async def named(self, names: Named) -> list[Row]:
        """The rows of these names, failed or not."""
        return await self._rows("failed_named", {"ids": list(names.ids), "event_ids": list(names.event_ids)})

    async def shown(self, row_id: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Everything else that is known of a row, its payload included, and what operators did to it."""
        async with operating(self._connection, self._schema):
            cursor = self._connection.cursor(row_factory=dict_row)
            details = await (
                await cursor.execute(statement("row_shown"), {"id": row_id, "most": COUNT_LIMIT})
            ).fetchone()
            history = await (await cursor.execute(statement("actions_of_row"), {"id": row_id})).fetchall()
        return details or {}, history

    async def act(self, action: Action, rows: Sequence[Row], operator: Operator, action_id: UUID) -> list[Row]:
        """Retry or discard those of the rows that are still as they were chosen, and answer with them.

        Waits for other sessions that hold one of the rows, for 30 s at most.
        """
        try:
            async with operating(self._connection, self._schema):
                acted = await self._unchanged(action, rows)
                if acted:
                    await self._apply(action, [row.id for row in acted], operator, action_id)
        except pg.LockNotAvailable as error:
            raise OperateError(
                "another session has held one of the rows for 30 s; rows of this batch are as they were. "
                "Find it in pg_stat_activity by its xact_start, and run the command again"
            ) from error
        return acted

    async def _unchanged(self, action: Action, rows: Sequence[Row]) -> list[Row]:
        cursor = await self._connection.execute(statement("failed_lock"), {"ids": [row.id for row in rows]})
        now = {row_id: (failed_at, reason) for row_id, failed_at, reason in await cursor.fetchall()}
        return [row for row in rows if action.fits(row) and now.get(row.id) == (row.failed_at, row.failure_reason)]

    async def _apply(self, action: Action, ids: list[int], operator: Operator, action_id: UUID) -> None:
        change = Change(f"failed_{action.value}", "actions_record", action.value)
        await actions.apply(self._connection, change, ids, operator, action_id)
        # A relay that sleeps takes a retried row at once.
        await self._connection.execute(statement("wake"))

    async def _rows(self, name: str, values: dict[str, Any]) -> list[Row]:
        async with operating(self._connection, self._schema):
            cursor = self._connection.cursor(row_factory=args_row(Row))
            await cursor.execute(statement(name), {**self._routing, **values})
            return await cursor.fetchall()
