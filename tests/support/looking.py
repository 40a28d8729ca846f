"""Asks databases from outside, over one session each for as long as a test runs.

A session of its own for each question costs ten times the question; and a service's costs what it takes Postgres to
plan `outbox_emit` anew.
"""

import threading
from typing import Any

import psycopg
from psycopg.rows import tuple_row

# A transaction is a thread's.
_open: dict[tuple[str, int], psycopg.Connection[Any]] = {}


def session(url: str) -> psycopg.Connection[Any]:
    """The test's session on a database, in autocommit; another where the server has ended the one before."""
    key = url, threading.get_ident()
    found = _open.get(key)
    if found is None or found.closed:
        found = _open[key] = psycopg.connect(url, autocommit=True)
    return found


def asked(url: str, query: str | bytes, values: Any = None, row_factory: Any = None) -> list[Any]:
    """The rows of an answer. It is asked twice where the server has ended the session, as a restart does."""
    connection = session(url)
    try:
        return _asked(connection, query, values, row_factory)
    except psycopg.OperationalError:
        if not connection.closed:
            raise
        return _asked(session(url), query, values, row_factory)


def stop_looking() -> None:
    """End all of them, as each test does in the end.

    A thread may be in the middle of an answer: to close its socket then would have it read from whatever opens next.
    """
    while _open:
        _, connection = _open.popitem()
        with connection.lock:
            connection.close()


def _asked(connection: psycopg.Connection[Any], query: str | bytes, values: Any, row_factory: Any) -> list[Any]:
    with connection.cursor(row_factory=row_factory or tuple_row) as cursor:
        return cursor.execute(query, values).fetchall()
