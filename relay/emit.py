"""The write side: check the events, then hand them to the one SQL function that stores them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from pydantic_core import to_jsonable_python

from relay import tracing
from relay.errors import AutocommitError, EmitError, InvalidEventError
from relay.event import Event
from relay.registry import Registry

_EMIT = "select event_id, sequence, inserted from outbox_emit(%s::jsonb)"
_JSON = json.JSONEncoder(default=to_jsonable_python, ensure_ascii=False, allow_nan=False)
_NUL = r"\u0000"
# A backslash that is itself escaped does not begin an escape.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# How `outbox_emit` names the event that it refuses.
_REFUSED = re.compile(r"outbox_emit: (?:event (?P<position>\d+) |the event (?P<event_id>[0-9a-f-]{36}) )")


@dataclass(frozen=True, slots=True)
class Emitted:
    """Where an event is: its id, its place in the outbox, and whether this call stored it.

    `inserted` is false when the event's dedup_key was taken; the other two then name the event that took it.
    """

    event_id: UUID
    sequence: int
    inserted: bool


@overload
def emit(
    connection: psycopg.Connection[Any], events: Event, *, order_lock: bool = True, registry: Registry | None = None
) -> Emitted: ...
@overload
def emit(
    connection: psycopg.Connection[Any],
    events: Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> list[Emitted]: ...
def emit(
    connection: psycopg.Connection[Any],
    events: Event | Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> Emitted | list[Emitted]:
    """Store one event, or many in their order with one statement, in the transaction that is open on `connection`.

    The commit of that transaction is the promise that they will be published; a rollback leaves nothing. The answers
    come in the order of the events. Any iterable of events is read to its end before anything is sent.

    Where the service uses OpenTelemetry, events emitted within a span get its W3C trace context as the attributes
    `traceparent` and `tracestate`. An event that names one of them itself keeps what it says; one whose own attributes
    leave no room travels without. The size of a message includes them.

    Emits with an ordering_key or a dedup_key wait for other transactions that emit to the same key; like any row lock
    this can end in a deadlock (SQLSTATE 40P01), after which the transaction is run again. `order_lock=False` is for
    callers who serialise the ordering key themselves, for example by a row lock on its aggregate. A dedup_key that was
    taken after a REPEATABLE READ transaction began ends it with a serialization failure (40001).

    With a `registry`, an event that it does not allow is refused with all the others of the call.

    Raises TypeError for what is no connection or no event, AutocommitError, InvalidEventError, or EmitError where the
    database has no outbox. What the database itself refuses leaves the transaction failed, like any error of a
    statement.
    """
    _require_connection(connection, psycopg.Connection, psycopg.AsyncConnection, "emit", "emit_async")
    batch = _batch(events)
    _sync_pipeline(connection)
    _require_transaction(connection)
    emitted = _store(connection, batch, _encode(batch, order_lock=order_lock, registry=registry))
    return emitted[0] if isinstance(events, Event) else emitted


@overload
async def emit_async(
    connection: psycopg.AsyncConnection[Any],
    events: Event,
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> Emitted: ...
@overload
async def emit_async(
    connection: psycopg.AsyncConnection[Any],
    events: Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> list[Emitted]: ...
async def emit_async(
    connection: psycopg.AsyncConnection[Any],
    events: Event | Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> Emitted | list[Emitted]:
    """Like `emit`, on an asynchronous connection."""
    _require_connection(connection, psycopg.AsyncConnection, psycopg.Connection, "emit_async", "emit")
    batch = _batch(events)
    await _sync_pipeline_async(connection)
    _require_transaction(connection)
    emitted = await _store_async(connection, batch, _encode(batch, order_lock=order_lock, registry=registry))
    return emitted[0] if isinstance(events, Event) else emitted


def _require_connection(given: object, kind: type, other_kind: type, function: str, other_function: str) -> None:
    """Refuse what is easily taken for the connection. What stands for one, as a pool's proxy may, has its info."""
    if isinstance(getattr(given, "info", None), psycopg.ConnectionInfo) and not isinstance(given, other_kind):
        return
    match given:
        case psycopg.Cursor() | psycopg.AsyncCursor():
            remedy = "; pass cursor.connection"
        case psycopg.Connection() | psycopg.AsyncConnection():
            remedy = f"; call {other_function}"
        case Event() | list() | tuple():
            remedy = "; the connection comes first, then the events"
        case _ if hasattr(given, "driver_connection"):  # SQLAlchemy's, around psycopg's
            remedy = "; pass its driver_connection"
        case _:
            remedy = ""
    raise TypeError(f"{function} takes a psycopg {kind.__name__}, not a value of type {type(given).__name__}{remedy}")


def _batch(events: object) -> list[Event]:
    """Refuse what is no event by its type alone: its value may not be meant for a log."""
    if isinstance(events, Event):
        return [events]
    # An empty one of these would otherwise pass as no events.
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
        raise TypeError(f"expected an Event or an iterable of Events, not {type(events).__name__}")
    batch = list(events)
    for position, event in enumerate(batch):
        if not isinstance(event, Event):
            raise TypeError(f"event {position} is of type {type(event).__name__}, not an Event")
    return batch


def _sync_pipeline(connection: psycopg.Connection[Any]) -> None:
    """Have a pipeline show whether a transaction is open, which only a sync does."""
    if connection.autocommit and connection.info.pipeline_status:
        with connection.pipeline() as pipeline:
            pipeline.sync()


async def _sync_pipeline_async(connection: psycopg.AsyncConnection[Any]) -> None:
    if connection.autocommit and connection.info.pipeline_status:
        async with connection.pipeline() as pipeline:
            await pipeline.sync()


def _require_transaction(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse to emit outside a transaction."""
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise AutocommitError(
            "the connection is in autocommit mode and no transaction is open: the event would be promised whether or "
            "not the change that it announces is made; open one with `with connection.transaction():`"
        )


def _encode(events: Sequence[Event], *, order_lock: bool, registry: Registry | None = None) -> str:
    trace = tracing.current()
    encoded = []
    for position, event in enumerate(events):
        try:
            # Once: data may be a generator.
            data = _JSON.encode(event.data)
            further = _JSON.encode(_further(event, trace, order_lock=order_lock))
            text = f'{further[:-1]}, "data": {data}}}'
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise _invalid(events, position, f": the data is not JSON: {error}") from error
        if _NUL in text and _ESCAPED_NUL.search(text):
            raise _invalid(
                events, position, ": the data contains a NUL character, which Postgres cannot store in jsonb"
            )
        if registry is not None and (fault := registry.fault(event, data)):
            raise _invalid(events, position, f" {fault}")
        encoded.append(text)
    return f"[{','.join(encoded)}]"


def _further(event: Event, trace: Mapping[str, str], *, order_lock: bool) -> dict[str, Any]:
    """What is said of the event beside its data; never nothing."""
    names = (name for name in type(event).model_fields if name != "data")
    fields = {name: value for name in names if (value := getattr(event, name)) is not None}
    fields["attributes"] = tracing.joined(event.attributes, trace)
    if event.actor is not None:
        fields["actor"] = event.actor.model_dump()
    if not order_lock:
        fields["order_lock"] = False
    return fields


def _invalid(events: Sequence[Event], position: int, words: str) -> InvalidEventError:
    """What is wrong with one event, which is named by its place only where there are several."""
    event_type = events[position].event_type
    name = f"event {position} ({event_type})" if len(events) > 1 else event_type
    return InvalidEventError(name + words, position)


def _store(connection: psycopg.Connection[Any], events: Sequence[Event], encoded: str) -> list[Emitted]:
    try:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            return [Emitted(*row) for row in cursor.execute(_EMIT, (encoded,))]
    except psycopg.Error as error:
        _translate(error, events)


async def _store_async(
    connection: psycopg.AsyncConnection[Any], events: Sequence[Event], encoded: str
) -> list[Emitted]:
    try:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_EMIT, (encoded,))
            return [Emitted(*row) for row in await cursor.fetchall()]
    except psycopg.Error as error:
        _translate(error, events)


def _translate(error: psycopg.Error, events: Sequence[Event]) -> NoReturn:
    message = error.diag.message_primary or ""
    match error:
        case pg.UndefinedFunction() if "outbox_emit" in message:
            raise EmitError(
                "the database has no outbox_emit(jsonb) on the search_path of this connection; "
                "create the outbox with: python -m relay migrate"
            ) from error
        case pg.InvalidParameterValue() | pg.UniqueViolation() if message.startswith(
            ("outbox_emit:", "outbox_events:")
        ):
            raise InvalidEventError(message, _position(message, events)) from error
        case pg.StatementTooComplex():
            raise InvalidEventError("the data is nested deeper than Postgres can read") from error
        case _:
            raise error


def _position(message: str, events: Sequence[Event]) -> int | None:
    """Which event a sentence of the database's is about: by its place, or by the event_id that is taken."""
    found = _REFUSED.match(message)
    if found is None:
        return None
    if found["position"]:
        return int(found["position"])
    named = (position for position, event in enumerate(events) if str(event.event_id) == found["event_id"])
    # The last: where it is there twice, the first one was stored.
    return max(named, default=None)
