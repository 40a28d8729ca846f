"""What a relay with nothing to do costs: the CPU of its process, and the statements that it asks Postgres."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.figures import Figure, Size
from benchmarks.running import Relay, at_rest, relay
from benchmarks.stand import POSTGRES_SETTINGS, Stand
from relay.dev.stack import Part, Stack
from relay.outbox import schema

TITLE = "A relay with nothing to do"
SECTION = "idle"
# The relay tells of itself, and looks at its queue, once a minute: a window has one of it.
WINDOW_SECONDS, QUICK_SECONDS = 60.0, 10.0
# What is left of its start.
SETTLE_SECONDS = 5.0
# Statements are counted by Postgres itself, on a server of its own: others shall not pay for it.
COUNTING = {**POSTGRES_SETTINGS, "shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}
_CALLS = "select sum(calls)::bigint from pg_stat_statements where userid = 'bench_idle'::regrole"


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Look at one process, window after window."""
    if not (Path("/proc") / "self" / "schedstat").exists():
        yield Figure(SECTION, "cpu", "% of a core", skipped=f"there is no /proc/self/schedstat on {sys.platform}")
        return
    seconds = QUICK_SECONDS if size.quick else WINDOW_SECONDS
    rounds = 1 if size.quick else size.rounds
    with (
        Stack.start({Part.POSTGRES}, postgres_settings=COUNTING) as stack,
        stand.topic() as topic,
        psycopg.connect(stack.database_url, autocommit=True) as connection,
        relay({**stand.environment, "DATABASE_URL": _prepared(connection, stack.database_url)}, topic.name) as process,
    ):
        at_rest(stack.database_url)
        time.sleep(SETTLE_SECONDS)
        windows = [_window(connection, process, seconds) for _ in range(rounds)]
    yield Figure(SECTION, "cpu", "% of a core", tuple(100 * cpu / took for cpu, _, took in windows))
    counted = tuple(60 * calls / took for _, calls, took in windows)
    # It looks every 30 s, and tells of itself once a minute.
    skipped = f"{seconds:.0f} s are too short to count them" if size.quick else ""
    yield Figure(SECTION, "statements", "/min", () if skipped else counted, skipped)


def _prepared(connection: psycopg.Connection[tuple[int]], url: str) -> str:
    """An outbox, and a user of the relay's own, whose statements are those that count."""
    connection.execute("create extension pg_stat_statements")
    connection.execute("create role bench_idle superuser login password 'bench'")
    with psycopg.connect(url) as migrating:
        schema.migrate(migrating, "public", schema.newest())
    info = connection.info
    return f"postgresql://bench_idle:bench@{info.host}:{info.port}/{info.dbname}"


def _window(connection: psycopg.Connection[tuple[int]], process: Relay, seconds: float) -> tuple[float, int, float]:
    """CPU seconds, statements, and in how many seconds."""
    began, cpu, calls = time.monotonic(), process.cpu_seconds(), _calls(connection)
    time.sleep(seconds)
    return process.cpu_seconds() - cpu, _calls(connection) - calls, time.monotonic() - began


def _calls(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute(_CALLS).fetchone()
    return int(row[0] or 0) if row else 0
