"""What a connection sees of the outbox: what is committed, and what its own transaction holds."""

from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.rows import tuple_row

from relay.errors import SchemaError
from relay.testing.emitted import EmittedEvent


def events_on(connection: Any, schema: str) -> list[EmittedEvent]:
    """Read every event, the first that was stored first. Raises TypeError for what is no connection."""
    if not _of_psycopg(connection) or isinstance(connection, psycopg.AsyncConnection):
        _refuse(connection, "connection= takes", psycopg.Connection)
    return [EmittedEvent.of_text(text) for text in _texts(connection, _statement(schema), schema)]


async def events_on_async(connection: Any, schema: str) -> list[EmittedEvent]:
    """Read the same over an asynchronous connection."""
    if not _of_psycopg(connection) or isinstance(connection, psycopg.Connection):
        _refuse(connection, "connection= of a method that is awaited takes", psycopg.AsyncConnection)
    return [EmittedEvent.of_text(text) for text in await _texts_async(connection, _statement(schema), schema)]


def _of_psycopg(given: object) -> bool:
    """Whether it is a connection, or stands for one as a pool's proxy may, which has its info."""
    return isinstance(getattr(given, "info", None), psycopg.ConnectionInfo)


def _texts(connection: psycopg.Connection[Any], statement: bytes, schema: str) -> list[str]:
    try:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            return [text for (text,) in cursor.execute(statement)]
    except pg.UndefinedTable as error:
        raise _no_outbox(connection, schema) from error


async def _texts_async(connection: psycopg.AsyncConnection[Any], statement: bytes, schema: str) -> list[str]:
    try:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement)
            return [text for (text,) in await cursor.fetchall()]
    except pg.UndefinedTable as error:
        raise _no_outbox(connection, schema) from error


@cache
def _statement(schema: str) -> bytes:
    text = (files("relay.testing") / "sql" / "emitted.sql").read_text(encoding="utf-8")
    return text.format(schema=sql.Identifier(schema).as_string(None)).encode()


def _no_outbox(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], schema: str) -> SchemaError:
    return SchemaError(
        f"database {connection.info.dbname!r} has no outbox in schema {schema!r}; "
        "create it with: python -m relay migrate, or name another schema: Outbox(url, schema=…)"
    )


def _refuse(given: object, words: str, kind: type) -> NoReturn:
    package = type(given).__module__.partition(".")[0]
    match given:
        case psycopg.AsyncConnection():
            remedy = "; await the method whose name ends in _async"
        case psycopg.Connection():
            remedy = "; call the method without _async at the end of its name"
        case psycopg.Cursor() | psycopg.AsyncCursor():
            remedy = "; pass cursor.connection"
        case _ if package == "sqlalchemy":
            remedy = "; of a SQLAlchemy connection, pass connection.connection.driver_connection"
        case _ if package == "django":
            remedy = "; of Django's connection, pass connection.connection"
        case _:
            remedy = ""
    raise TypeError(f"{words} a psycopg {kind.__name__}, not a value of type {type(given).__name__}{remedy}")
