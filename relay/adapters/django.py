"""Django: `connection` and each of `connections`, on psycopg and psycopg2."""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.transaction import Atomic
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy

from relay.adapters.adapter import Adapter, Call, Library, SyncAdapter


def _store(given: Any, words: str, call: Call) -> list[str | bytes]:
    connection = _database(given)
    if not connection.in_atomic_block and connection.get_autocommit():
        raise call.autocommits("open one by: with transaction.atomic(), and not in on_commit, which runs after it")
    return _texts(connection, call.format, [words])


def _texts(given: Any, statement: str, values: list[str] | None = None) -> list[str | bytes]:
    with _database(given).cursor() as cursor:
        cursor.execute(statement, values)
        return [answer for (answer,) in cursor.fetchall()]


def _database(given: Any) -> Any:
    """What the proxy stands for, which may be no database: Django has caches behind proxies of the same type."""
    vendor = getattr(given, "vendor", None)
    if vendor != "postgresql":
        what = f"one of {vendor}" if vendor else "what is no database"
        raise TypeError(f"emit takes Django's connections to Postgres, not {what}; pass `connections[alias]`")
    return connections[given.alias] if isinstance(given, ConnectionProxy) else given


_ADAPTER = SyncAdapter(
    _store,
    _texts,
    awaited="Django's are synchronous: have sync_to_async run a function that makes the change and calls emit, both "
    "within its `with transaction.atomic():`",
)


def _adapter_of(kind: type) -> Adapter | None:
    return _ADAPTER if issubclass(kind, BaseDatabaseWrapper | ConnectionProxy) else None


def _remedy(given: object) -> str | None:
    match given:
        case ConnectionHandler():
            return 'pass one of them, such as `connections["default"]`'
        case CursorWrapper() | Atomic():
            return "pass the connection: `from django.db import connection`"
        case _:
            return None


LIBRARY = Library(_adapter_of, _remedy)
