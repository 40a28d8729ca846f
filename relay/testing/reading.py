"""What a connection sees of the outbox: what is committed, and what its own transaction holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files

from psycopg import sql

from relay.adapters.adapter import AsyncAdapter, SyncAdapter
from relay.adapters.fault import fault_of
from relay.adapters.find import adapter_of, refused, remedy_of
from relay.errors import SchemaError
from relay.testing.emitted import EmittedEvent

_UNDEFINED_TABLE = "42P01"


def events_on(connection: object, schema: str) -> list[EmittedEvent]:
    """Read every event, the first that was stored first. Raises TypeError for what is no connection."""
    match adapter_of(connection):
        case SyncAdapter() as adapter:
            with _naming(schema):
                return _events(adapter.texts(connection, _statement(schema)))
        case AsyncAdapter():
            remedy: str | None = "await the method whose name ends in _async"
        case None:
            remedy = remedy_of(connection)
    raise refused("connection= takes whatever emit does", connection, remedy)


async def events_on_async(connection: object, schema: str) -> list[EmittedEvent]:
    """Read the same over an asynchronous connection."""
    match adapter_of(connection):
        case AsyncAdapter() as adapter:
            with _naming(schema):
                return _events(await adapter.texts(connection, _statement(schema)))
        case SyncAdapter():
            remedy: str | None = "call the method without _async at the end of its name"
        case None:
            remedy = remedy_of(connection)
    raise refused("connection= of a method that is awaited takes whatever emit_async does", connection, remedy)


def _events(texts: list[str | bytes]) -> list[EmittedEvent]:
    return [EmittedEvent.of_text(text.decode() if isinstance(text, bytes) else text) for text in texts]


@cache
def _statement(schema: str) -> str:
    text = (files("relay.testing") / "sql" / "emitted.sql").read_text(encoding="utf-8")
    return text.format(schema=sql.Identifier(schema).as_string(None))


@contextmanager
def _naming(schema: str) -> Iterator[None]:
    """Say of a database that it has no outbox there, whichever library tells it."""
    try:
        yield
    except Exception as error:  # of whichever library the connection is
        fault = fault_of(error)
        if fault is None or fault.sqlstate != _UNDEFINED_TABLE:
            raise
        raise SchemaError(
            f"the database of this connection has no outbox in schema {schema!r}; "
            "create it with: python -m relay migrate, or name another schema: Outbox(url, schema=…)"
        ) from error
