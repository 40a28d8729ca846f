"""The example of notifications from outside: its database, and the services and the provider around it."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import uvicorn

from examples.notifications import outside
from examples.notifications.__main__ import SETTINGS

# What a killed process had is taken over soon.
SHORT = {"INBOX_LEASE_MS": "2s", "INBOX_HEARTBEAT_MS": "500ms"}


def environment_of(database: str, url: str, files: Path) -> dict[str, str]:
    """That of the example's process."""
    places = {"DATABASE_URL": database, "OUTSIDE_URL": url, "ARCHIVE_BUCKET": str(files)}
    return {**os.environ, **SETTINGS, **SHORT, **places}


@contextmanager
def outside_at_work() -> Iterator[str]:
    """The services and the provider in a thread; what they were called with is in `outside.calls`."""
    outside.calls.clear()
    server = uvicorn.Server(uvicorn.Config(outside.outside, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def held(database: str, table: str) -> Iterator[None]:
    """Nobody writes to the table meanwhile; who wants to waits."""
    with psycopg.connect(database) as connection:
        connection.execute(f"lock table {table} in share mode".encode())
        yield


def waits(database: psycopg.Connection[Any], statement: str) -> bool:
    """Whether somebody waits with a statement that has these words."""
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and position(%s in query) > 0"
    )
    return database.execute(waiting, [statement]).fetchone() != (0,)
