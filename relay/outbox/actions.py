"""What operators do to rows: who acts, and each change with its record, in one transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from relay.errors import InvariantError
from relay.outbox.queue import operating
from relay.outbox.statements import statement


class Operator(NamedTuple):
    """Who acts, and why."""

    by: str
    why: str | None


class Start(NamedTuple):
    """The database's time, an id for one command's actions, and the role that asks."""

    now: datetime
    action_id: UUID
    role: str


class Change(NamedTuple):
    """A statement that changes rows, the one that records it, and the name under which it is recorded."""

    statement: str
    record: str
    action: str


async def start(connection: psycopg.AsyncConnection[Any], schema: str) -> Start:
    """Begin a command; the connection is in autocommit mode."""
    async with operating(connection, schema):
        cursor = await connection.execute(statement("operate_start"))
        ((now, action_id, role),) = await cursor.fetchall()
    return Start(now, action_id, role)


async def apply(
    connection: psycopg.AsyncConnection[Any], change: Change, ids: Sequence[int], operator: Operator, action_id: UUID
) -> None:
    """Record and change rows that this transaction has locked; each of them, or it raises."""
    values = {"action_id": action_id, "action": change.action, "by": operator.by, "why": operator.why, "ids": list(ids)}
    for name in (change.record, change.statement):
        done = await connection.execute(statement(name), values)
        if done.rowcount != len(ids):
            raise InvariantError(
                f"{name} changed {done.rowcount} of {len(ids)} rows although this transaction holds their locks; "
                "it is rolled back"
            )
