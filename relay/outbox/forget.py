"""What the outbox keeps about aggregates: found by a walk over the table, removed or redacted by id."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.rows import args_row

from relay.errors import OperateError
from relay.outbox import actions
from relay.outbox.actions import Change, Operator
from relay.outbox.queue import operating
from relay.outbox.statements import statement


class Way(Enum):
    """How rows are forgotten; the name under which it is recorded."""

    REMOVE = "remove"
    REDACT = "redact"


class State(Enum):
    """What has become of a row."""

    PUBLISHED = "published"
    DISCARDED = "discarded"
    PENDING = "pending"
    FAILED = "failed"

    @property
    def decided(self) -> bool:
        """Whether its event can be forgotten without a further word: nobody waits for it any more."""
        return self in {State.PUBLISHED, State.DISCARDED}


class Aggregate(NamedTuple):
    """Whom rows are about; exact in every byte."""

    type: str
    id: str


class Mark(NamedTuple):
    """What a command means: rows up to this one, of transactions from before this xid."""

    newest: int
    xid: str


class Order(NamedTuple):
    """What is to be done, by whom."""

    way: Way
    operator: Operator
    action_id: UUID
    undecided: bool  # also to rows that are pending or failed


class Page(NamedTuple):
    """What was read, up to which row, and the rows in it that are meant."""

    read: int
    last: int | None
    found: Sequence[tuple[int, State]]


class _Line(NamedTuple):
    read: int
    last: int | None
    id: int | None
    state: str | None


class Aggregates:
    """The rows of these aggregates, over one connection in autocommit mode."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], schema: str, meant: Sequence[Aggregate]) -> None:
        self._connection = connection
        self._schema = schema
        self._meant = {"types": [each.type for each in meant], "ids": [each.id for each in meant]}

    async def start(self) -> actions.Start:
        """Begin a command."""
        return await actions.start(self._connection, self._schema)

    async def mark(self) -> Mark:
        """Settle which rows are meant."""
        async with operating(self._connection, self._schema):
            cursor = self._connection.cursor(row_factory=args_row(Mark))
            (mark,) = await (await cursor.execute(statement("forget_mark"))).fetchall()
        return mark

    async def settled(self, mark: Mark) -> bool:
        """Whether all that is meant can be seen by now."""
        async with operating(self._connection, self._schema):
            cursor = await self._connection.execute(statement("forget_settled"), {"xid": mark.xid})
            ((settled,),) = await cursor.fetchall()
        return bool(settled)

    async def page(self, after: int, newest: int, rows: int) -> Page:
        """Read the next rows, in the order of their ids."""
        values = {**self._meant, "after": after, "newest": newest, "rows": rows}
        async with operating(self._connection, self._schema):
            cursor = self._connection.cursor(row_factory=args_row(_Line))
            lines = await (await cursor.execute(statement("forget_page"), values)).fetchall()
        found = [(line.id, State(line.state)) for line in lines if line.id is not None]
        return Page(lines[0].read, lines[0].last, found)

    async def forget(self, order: Order, ids: Sequence[int]) -> dict[State, int]:
        """Forget those of the rows that are still of these aggregates, with their record; answers how many, by state.

        Waits for other sessions that hold one of the rows, for 30 s at most.
        """
        way = order.way.value
        change = Change(f"forget_{way}", "forget_record", way)
        try:
            async with operating(self._connection, self._schema):
                cursor = await self._connection.execute(statement("forget_lock"), {**self._meant, "rows": list(ids)})
                states = {row_id: State(state) for row_id, state in await cursor.fetchall() if state is not None}
                chosen = [row_id for row_id, state in states.items() if order.undecided or state.decided]
                if chosen:
                    await actions.apply(self._connection, change, chosen, order.operator, order.action_id)
                if not all(states[row_id].decided for row_id in chosen):
                    # A relay that sleeps takes what waited behind them at once.
                    await self._connection.execute(statement("wake"))
        except pg.InsufficientPrivilege as error:
            raise OperateError(
                f"role {self._connection.info.user!r} may not do this: {error.diag.message_primary}; grant it what "
                "docs/forgetting.md names, or run the command as the owner of the outbox"
            ) from error
        except pg.LockNotAvailable as error:
            raise OperateError(
                "another session, a relay that publishes them perhaps, has held one of the rows for 30 s; rows of this "
                "batch are as they were. Find it in pg_stat_activity by its xact_start, and run the command again"
            ) from error
        return {state: sum(states[row_id] is state for row_id in chosen) for state in State}
