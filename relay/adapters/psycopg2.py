"""psycopg2: its connections, of whatever subclass and cursor_factory."""

from typing import Any

from psycopg2 import extensions

from relay.adapters.adapter import Adapter, Call, Library, SyncAdapter

_IDLE = extensions.TRANSACTION_STATUS_IDLE


def _store(connection: Any, words: str, call: Call) -> list[str | bytes]:
    if connection.async_:
        raise TypeError("emit takes no psycopg2 connection in asynchronous mode; open one without async_=True")
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:
        if _would_commit(connection, cursor):
            raise call.autocommits("set connection.autocommit = False, or open one by: with connection")
        cursor.execute(call.format, (words,))
        return [answer for (answer,) in cursor.fetchall()]


def _texts(connection: Any, statement: str) -> list[str | bytes]:
    with connection.cursor(cursor_factory=extensions.cursor) as cursor:
        cursor.execute(statement)
        return [answer for (answer,) in cursor.fetchall()]


def _would_commit(connection: Any, cursor: Any) -> bool:
    if not connection.autocommit or connection.get_transaction_status() != _IDLE:
        return False
    # `with connection:` opens its transaction with its first statement, and nothing tells of it before.
    cursor.execute("select")
    return bool(connection.get_transaction_status() == _IDLE)


_ADAPTER = SyncAdapter(_store, _texts)


def _adapter_of(kind: type) -> Adapter | None:
    return _ADAPTER if issubclass(kind, extensions.connection) else None


def _remedy(given: object) -> str | None:
    if isinstance(given, extensions.cursor):
        return "pass cursor.connection"
    if any(base.__module__ == "psycopg2.pool" for base in type(given).__mro__):
        return "pass one of its connections: `connection = pool.getconn()`"
    return None


LIBRARY = Library(_adapter_of, _remedy)
