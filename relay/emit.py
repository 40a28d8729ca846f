"""The write side: check the events, then hand them to the one SQL function that stores them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload
from uuid import UUID

from pydantic_core import to_jsonable_python

from relay import tracing
from relay.adapters.adapter import EMIT, AsyncConnection, SyncConnection
from relay.adapters.fault import Fault, fault_of, is_unencodable
from relay.adapters.find import async_adapter, sync_adapter
from relay.errors import EmitError, InvalidEventError
from relay.event import Event
from relay.registry import Registry

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
    connection: SyncConnection, events: Event, *, order_lock: bool = True, registry: Registry | None = None
) -> Emitted: ...
@overload
def emit(
    connection: SyncConnection, events: Iterable[Event], *, order_lock: bool = True, registry: Registry | None = None
) -> list[Emitted]: ...
def emit(
    connection: SyncConnection,
    events: Event | Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> Emitted | list[Emitted]:
    """Store one event, or many in their order with one statement, in the transaction that is open on `connection`.

    That is a connection of psycopg, psycopg2 or Django, or a connection or session of SQLAlchemy on one of these
    drivers. The commit of its transaction is the promise that the events will be published; a rollback leaves nothing.
    The answers come in the order of the events. Any iterable of events is read to its end before anything is sent.

    Where the service uses OpenTelemetry, events emitted within a span get its W3C trace context as the attributes
    `traceparent` and `tracestate`. An event that names one of them itself keeps what it says; one whose own attributes
    leave no room travels without. The size of a message includes them.

    Emits with an ordering_key or a dedup_key wait for other transactions that emit to the same key; like any row lock
    this can end in a deadlock (SQLSTATE 40P01), after which the transaction is run again. `order_lock=False` is for
    callers who serialise the ordering key themselves, for example by a row lock on its aggregate. A dedup_key that was
    taken after a REPEATABLE READ transaction began ends it with a serialization failure (40001).

    With a `registry`, an event that it does not allow is refused with all the others of the call.

    Raises TypeError for what is no connection or no event, AutocommitError, InvalidEventError, or EmitError where the
    database has no outbox or the role may not emit. All other errors are the library's own. What the database itself
    refuses leaves the transaction failed, like any error of a statement.
    """
    adapter = sync_adapter(connection)
    batch = _batch(events)
    encoded = _encode(batch, order_lock=order_lock, registry=registry)
    try:
        answers = adapter.store(connection, encoded, EMIT)
    except Exception as error:  # of whichever library the connection is
        _refuse(error, batch)
        raise
    emitted = [_emitted(answer) for answer in answers]
    return emitted[0] if isinstance(events, Event) else emitted


@overload
async def emit_async(
    connection: AsyncConnection, events: Event, *, order_lock: bool = True, registry: Registry | None = None
) -> Emitted: ...
@overload
async def emit_async(
    connection: AsyncConnection, events: Iterable[Event], *, order_lock: bool = True, registry: Registry | None = None
) -> list[Emitted]: ...
async def emit_async(
    connection: AsyncConnection,
    events: Event | Iterable[Event],
    *,
    order_lock: bool = True,
    registry: Registry | None = None,
) -> Emitted | list[Emitted]:
    """Like `emit`, on a connection of psycopg or asyncpg, or on an asynchronous one or a session of SQLAlchemy."""
    adapter = async_adapter(connection)
    batch = _batch(events)
    encoded = _encode(batch, order_lock=order_lock, registry=registry)
    try:
        answers = await adapter.store(connection, encoded, EMIT)
    except Exception as error:  # of whichever library the connection is
        _refuse(error, batch)
        raise
    emitted = [_emitted(answer) for answer in answers]
    return emitted[0] if isinstance(events, Event) else emitted


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
    fields = {name: value for name, value in event.__dict__.items() if value is not None and name != "data"}
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


def _emitted(answer: str | bytes) -> Emitted:
    # A connection whose encoding is SQL_ASCII has bytes for text.
    text = answer.decode() if isinstance(answer, bytes) else answer
    event_id, sequence, inserted = text.split()
    return Emitted(UUID(event_id), int(sequence), inserted == "t")


def _refuse(error: Exception, events: Sequence[Event]) -> None:
    """Raise what emit has a word for as an EmitError; all else is the library's to tell."""
    if is_unencodable(error):
        # Without the driver's error, which quotes the text.
        raise EmitError(
            "the client_encoding of the connection has no word for a character of the events; "
            "nothing was sent: set it to UTF8"
        ) from None
    if (fault := fault_of(error)) and (translated := _translated(fault, events)):
        raise translated from error


def _translated(fault: Fault, events: Sequence[Event]) -> EmitError | None:
    message = fault.message
    match fault.sqlstate:
        case "42883" if "outbox_emit" in message:  # undefined_function
            # Postgres passes over a schema that the role may not use.
            return EmitError(
                "the database has no outbox_emit(jsonb) on the search_path of this connection that its role may use; "
                "let the role emit with: python -m relay grants --emitter ROLE, "
                "or create the outbox with: python -m relay migrate"
            )
        case "42501":  # insufficient_privilege
            return EmitError(
                f"the role of this connection may not emit ({message}); "
                "let it with: python -m relay grants --emitter ROLE"
            )
        case "22023" | "23505" if message.startswith(("outbox_emit:", "outbox_events:")):  # invalid value, unique
            return InvalidEventError(message, _position(message, events))
        case "54001":  # statement_too_complex
            return InvalidEventError("the data is nested deeper than Postgres can read")
        case _:
            return None


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
