"""Work for a consumer with an inbox, stored in the transaction of whoever asks for it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from pydantic_core import to_jsonable_python

from consumers.errors import ConfigurationError
from consumers.sharding import shard_of
from idempotency import InvalidKeyError, identity_of_text
from idempotency.keys import identity
from relay import envelope
from relay.adapters.adapter import AsyncAdapter, AsyncConnection, Call, SyncAdapter, SyncConnection
from relay.adapters.fault import Fault, fault_of, is_unencodable
from relay.adapters.find import adapter_of, refused, remedy_of
from relay.errors import EmitError, InvalidEventError

_TAKES: Final = "enqueue takes a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django"
_TAKES_SYNC: Final = "enqueue_sync takes a connection or session of psycopg, psycopg2, SQLAlchemy or Django"
_UNKEPT: Final = "the work would be done whether or not the change that it belongs to is made"
_JSON: Final = json.JSONEncoder(default=to_jsonable_python, ensure_ascii=False, allow_nan=False)
# A backslash that is itself escaped does not begin an escape.
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# What one of these would be to a library's way of writing parameters.
_UNQUOTABLE: Final = re.compile(r"[%:\0]")


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Which delivery it is, and whether this call stored it; one that was there already stays as it was."""

    delivery: int
    event_id: UUID
    inserted: bool


async def enqueue(  # noqa: PLR0913 -- each by its name
    connection: AsyncConnection | SyncConnection,
    *,
    consumer: str,
    event_type: str,
    data: Any,
    event_id: UUID | str | None = None,
    key: str | None = None,
    version: int = 1,
    attributes: Mapping[str, str] | None = None,
    shard_key: str | None = None,
    schema: str = "public",
) -> Enqueued:
    """Have a consumer with an inbox act on an event that no relay brings, in the transaction open on `connection`.

    That is any connection that `emit` or `emit_async` takes, to the database that has the inbox. Once for each event
    id, or for each `key`, a text of which a stable id is made; whoever comes later waits for the transaction of the
    first, and is answered with its delivery. `shard_key` is what stays together on one process, as the consumer's
    `shard_by` would say of it.

    Raises TypeError for what is no connection, AutocommitError, InvalidEventError, EmitError, or ConfigurationError
    where the database has no inbox or the role may not write to it. All other errors are the library's own. What the
    database itself refuses leaves the transaction failed.
    """
    adapter = adapter_of(connection)
    if adapter is None:
        raise refused(_TAKES, connection, remedy_of(connection))
    identified = _identified(event_id, key)
    said = _said(consumer, event_type, data, identified, version, attributes, shard_key)
    call = _call(schema)
    try:
        match adapter:
            case SyncAdapter(store):
                answers = store(connection, said, call)
            case AsyncAdapter(store_async):
                answers = await store_async(connection, said, call)
    except Exception as error:  # of whichever library the connection is
        _refuse(error, schema)
        raise
    return _enqueued(identified, answers)


def enqueue_sync(  # noqa: PLR0913 -- each by its name
    connection: SyncConnection,
    *,
    consumer: str,
    event_type: str,
    data: Any,
    event_id: UUID | str | None = None,
    key: str | None = None,
    version: int = 1,
    attributes: Mapping[str, str] | None = None,
    shard_key: str | None = None,
    schema: str = "public",
) -> Enqueued:
    """Like `enqueue`, in code that is not asynchronous."""
    adapter = adapter_of(connection)
    if not isinstance(adapter, SyncAdapter):
        raise refused(_TAKES_SYNC, connection, "await enqueue" if adapter else remedy_of(connection))
    identified = _identified(event_id, key)
    said = _said(consumer, event_type, data, identified, version, attributes, shard_key)
    try:
        answers = adapter.store(connection, said, _call(schema))
    except Exception as error:  # of whichever library the connection is
        _refuse(error, schema)
        raise
    return _enqueued(identified, answers)


def _identified(event_id: UUID | str | None, key: str | None) -> UUID:
    try:
        if event_id is not None and key is None:
            return identity(event_id)
        if key is not None and event_id is None:
            return identity_of_text(key)
    except InvalidKeyError as error:
        raise InvalidEventError(str(error)) from None
    except UnicodeEncodeError:
        raise InvalidEventError("the key contains a lone surrogate, which is not Unicode text") from None
    raise TypeError("give event_id or key, one of them: by it the same work is known when it is asked for again")


def _said(  # noqa: PLR0913, PLR0917 -- what is said of one event
    consumer: str,
    event_type: str,
    data: Any,
    event_id: UUID,
    version: int,
    attributes: Mapping[str, str] | None,
    shard_key: str | None,
) -> str:
    if type(version) is not int or not 1 <= version <= envelope.VERSION_MOST:
        raise InvalidEventError(f"version {version!r:.64} is not a whole number from 1 to {envelope.VERSION_MOST}")
    further = {
        "consumer": _text("consumer", consumer),
        "event_type": _text("event_type", event_type),
        "event_id": str(event_id),
        "version": version,
        "shard": shard_of(
            str(event_id) if shard_key is None else _text("shard_key", shard_key, envelope.ATTRIBUTE_VALUE_BYTES)
        ),
        "attributes": _own(event_type, attributes),
    }
    try:
        text = f'{_JSON.encode(further)[:-1]}, "data": {_JSON.encode(data)}}}'
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"{event_type}: the data is not JSON: {error}") from error
    if _ESCAPED_NUL.search(text):
        raise InvalidEventError(
            f"{event_type}: the data contains a NUL character, which Postgres cannot store in jsonb"
        )
    return text


def _text(name: str, value: object, most: int = envelope.NAME_BYTES) -> str:
    if not isinstance(value, str):
        raise InvalidEventError(f"{name} is of type {type(value).__name__}, not a text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidEventError(f"{name} contains a lone surrogate, which is not Unicode text") from None
    if not 1 <= size <= most:
        raise InvalidEventError(f"{name} has {size} bytes, the limit is 1 to {most}")
    if "\0" in value:
        raise InvalidEventError(f"{name} contains a NUL character, which Postgres cannot store")
    return value


def _own(event_type: str, attributes: Mapping[str, str] | None) -> dict[str, str]:
    try:
        own = dict(attributes or {})
        fault = envelope.attributes_fault(own)
    except (AttributeError, TypeError, ValueError):  # a lone surrogate among them
        raise InvalidEventError(f"{event_type} has attributes that are no mapping of Unicode texts") from None
    if fault:
        raise InvalidEventError(f"{event_type} {fault}")
    return own


def _call(schema: str) -> Call:
    if not schema or _UNQUOTABLE.search(schema):
        raise ConfigurationError(f"schema is {schema!r:.100}; give the inbox's, as in INBOX_SCHEMA, without % and :")
    quoted = schema.replace('"', '""')
    function = f'"{quoted}".inbox_enqueue'
    return Call(f"select concat_ws(' ', delivery, inserted) from {function}(\n", _UNKEPT)  # noqa: S608 -- quoted


def _enqueued(event_id: UUID, answers: Sequence[str | bytes]) -> Enqueued:
    (answer,) = answers
    # A connection whose encoding is SQL_ASCII has bytes for text.
    delivery, inserted = (answer.decode() if isinstance(answer, bytes) else answer).split()
    return Enqueued(int(delivery), event_id, inserted == "t")


def _refuse(error: Exception, schema: str) -> None:
    """Raise what enqueue has a word for; all else is the library's to tell."""
    if is_unencodable(error):
        # Without the driver's error, which quotes the text.
        raise EmitError(
            "the client_encoding of the connection has no word for a character of the event; "
            "nothing was sent: set it to UTF8"
        ) from None
    if (fault := fault_of(error)) and (translated := _translated(fault, schema)):
        raise translated from error


def _translated(fault: Fault, schema: str) -> Exception | None:
    match fault.sqlstate:
        # undefined_function, invalid_schema_name
        case "42883" | "3F000" if "inbox_enqueue" in fault.message or "schema" in fault.message:
            return ConfigurationError(
                f"the database has no inbox in schema {schema!r} that this role may use; "
                "create it with: python -m consumers migrate"
            )
        case "42501":  # insufficient_privilege
            return ConfigurationError(
                f"the role of this connection may not enqueue ({fault.message}); grant it usage on schema {schema!r}, "
                "select and insert on inbox_deliveries, and insert on inbox_history"
            )
        case "22023" if fault.message.startswith("inbox_enqueue:"):  # invalid value
            return InvalidEventError(fault.message)
        case "54001":  # statement_too_complex
            return InvalidEventError("the data is nested deeper than Postgres can read")
        case _:
            return None
