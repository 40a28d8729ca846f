"""The write side: check the events, then hand them to the one SQL function that stores them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from pydantic_core import to_jsonable_python

from relay.errors import AutocommitError, EmitError, InvalidEventError
from relay.event import Event

_EMIT = "select event_id, sequence, inserted from outbox_emit(%s::jsonb)"
_JSON = json.JSONEncoder(default=to_jsonable_python, ensure_ascii=False, allow_nan=False)
_NUL = r"\u0000"
# A backslash that is itself escaped does not begin an escape.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Emitted:
    """Where an event is: its id, its place in the outbox, and whether this call stored it.

    `inserted` is false when the event's dedup_key was taken; the other two then name the event that took it.
    """

    event_id: UUID
    sequence: int
    inserted: bool


@overload
def emit(connection: psycopg.Connection[Any], events: Event, *, order_lock: bool = True) -> Emitted: ...
@overload
def emit(connection: psycopg.Connection[Any], events: Sequence[Event], *, order_lock: bool = True) -> list[Emitted]: ...
def emit(
    connection: psycopg.Connection[Any], events: Event | Sequence[Event], *, order_lock: bool = True
) -> Emitted | list[Emitted]:
    """Store one event, or many in their order with one statement, in the transaction that is open on `connection`.

    The commit of that transaction is the promise that they will be published; a rollback leaves nothing.
    Emits with an ordering_key or a dedup_key wait for other transactions that emit to the same key; like any row lock
    this can end in a deadlock (SQLSTATE 40P01), after which the transaction is run again. `order_lock=False` is for
    callers who serialise the ordering key themselves, for example by a row lock on its aggregate. A dedup_key that was
    taken after a REPEATABLE READ transaction began ends it with a serialization failure (40001).

    Raises AutocommitError, InvalidEventError, or EmitError where the database has no outbox. What the database itself
    refuses leaves the transaction failed, like any error of a statement.
    """
    if connection.autocommit and connection.info.pipeline_status:
        with connection.pipeline() as pipeline:
            pipeline.sync()
    _require_transaction(connection)
    batch = [events] if isinstance(events, Event) else events
    try:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            emitted = [Emitted(*row) for row in cursor.execute(_EMIT, (_encode(batch, order_lock=order_lock),))]
    except psycopg.Error as error:
        _translate(error)
    return emitted[0] if isinstance(events, Event) else emitted


@overload
async def emit_async(
    connection: psycopg.AsyncConnection[Any], events: Event, *, order_lock: bool = True
) -> Emitted: ...
@overload
async def emit_async(
    connection: psycopg.AsyncConnection[Any], events: Sequence[Event], *, order_lock: bool = True
) -> list[Emitted]: ...
async def emit_async(
    connection: psycopg.AsyncConnection[Any], events: Event | Sequence[Event], *, order_lock: bool = True
) -> Emitted | list[Emitted]:
    """Like `emit`, on an asynchronous connection."""
    if connection.autocommit and connection.info.pipeline_status:
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    _require_transaction(connection)
    batch = [events] if isinstance(events, Event) else events
    try:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_EMIT, (_encode(batch, order_lock=order_lock),))
            emitted = [Emitted(*row) for row in await cursor.fetchall()]
    except psycopg.Error as error:
        _translate(error)
    return emitted[0] if isinstance(events, Event) else emitted


def _require_transaction(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse to emit outside a transaction; a pipeline shows its state only after a sync."""
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise AutocommitError(
            "the connection is in autocommit mode and no transaction is open: the event would be promised whether or "
            "not the change that it announces is made; open one with `with connection.transaction():`"
        )


def _encode(events: Sequence[Event], *, order_lock: bool) -> str:
    return f"[{','.join(_encode_one(event, order_lock=order_lock) for event in events)}]"


def _encode_one(event: Event, *, order_lock: bool) -> str:
    fields = {name: value for name in type(event).model_fields if (value := getattr(event, name)) is not None}
    fields["data"] = event.data
    if event.actor is not None:
        fields["actor"] = event.actor.model_dump()
    if not order_lock:
        fields["order_lock"] = False
    try:
        text = _JSON.encode(fields)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"{event.event_type}: the data is not JSON: {error}") from error
    if _NUL in text and _ESCAPED_NUL.search(text):
        raise InvalidEventError(
            f"{event.event_type}: the data contains a NUL character, which Postgres cannot store in jsonb"
        )
    return text


def _translate(error: psycopg.Error) -> NoReturn:
    message = error.diag.message_primary or ""
    match error:
        case pg.UndefinedFunction() if "outbox_emit" in message:
            raise EmitError(
                "the database has no outbox_emit(jsonb) on the search_path of this connection; "
                "create the outbox with: python -m relay migrate"
            ) from error
        case pg.InvalidParameterValue() if message.startswith("outbox_emit:"):
            raise InvalidEventError(message) from error
        case pg.UniqueViolation() if error.diag.constraint_name == "outbox_events_event_id":
            raise InvalidEventError(f"the event is in the outbox already: {error.diag.message_detail}") from error
        case pg.StatementTooComplex():
            raise InvalidEventError("the data is nested deeper than Postgres can read") from error
        case _:
            raise error
