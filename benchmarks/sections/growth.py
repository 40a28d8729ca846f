"""Whether a drain is slower beside what was published before, and under a snapshot that somebody keeps open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.conninfo import make_conninfo

from benchmarks import backlog
from benchmarks.drains import UNIT, Backlog, task, warm_up
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand
from relay.outbox import schema

TITLE = "Draining beside what was published before"
SECTION = "growth"
_BYTES, _PUBLISHED_BYTES = 400, 100
_EVENTS, _QUICK_EVENTS = 100_000, 20_000
_CHUNK = 500_000
_MILLION = 1_000_000
_WARM_UP = 20_000
_TABLES = {"empty": 0, "1 M published": _MILLION, "10 M published": 10 * _MILLION}
_QUICK_TABLES = {"empty": 0, "1 M published": _MILLION}


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Tables of several sizes in turns, each in a database of its own; then the snapshot."""
    tables = _QUICK_TABLES if size.quick else _TABLES
    warm_up(stand, _WARM_UP)
    with ExitStack() as databases:
        beside = {
            name: databases.enter_context(_database(stand, f"bench_growth_{number}", rows))
            for number, (name, rows) in enumerate(tables.items())
        }
        events = _QUICK_EVENTS if size.quick else _EVENTS
        kinds = {name: partial(_drained, place, events, nullcontext) for name, place in beside.items()}
        kinds["empty, a snapshot held"] = partial(
            _drained, beside["empty"], events, partial(_snapshot, beside["empty"])
        )
        # What has been filled is still being written to disk.
        for name, values in in_turns(size.rounds, kinds, warm=["empty"]).items():
            yield Figure(SECTION, name, UNIT, values)
    if size.quick:
        yield Figure(SECTION, "10 M published", UNIT, skipped="takes minutes to fill")


@contextmanager
def _database(stand: Stand, name: str, published: int) -> Iterator[Stand]:
    """A database of the same server with so many published rows."""
    named = sql.Identifier(name)
    url = make_conninfo(stand.database_url, dbname=name)
    with psycopg.connect(stand.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(named))
        try:
            with psycopg.connect(url) as migrating:
                schema.migrate(migrating, "public", schema.newest())
            for _ in range(published // _CHUNK):
                backlog.fill(url, _CHUNK, _PUBLISHED_BYTES, published=True)
            backlog.settle(url)
            yield replace(stand, database_url=url)
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(named))


def _drained(stand: Stand, events: int, during: Callable[[], AbstractContextManager[None]]) -> float:
    """Events a second. What was drained is removed, so that the table is of the same size in each round."""
    with psycopg.connect(stand.database_url, autocommit=True) as connection, ExitStack() as meanwhile:
        row = connection.execute("select coalesce(max(id), 0) from outbox_events").fetchone()
        before = row[0] if row else 0
        asked = task(stand, Backlog(events, _BYTES))

        def fill() -> None:
            asked.fill()
            meanwhile.enter_context(during())

        seconds = replace(asked, fill=fill).timed(stand).seconds
        meanwhile.close()
        connection.execute("delete from outbox_events where id > %s", (before,))
        return events / seconds


@contextmanager
def _snapshot(stand: Stand) -> Iterator[None]:
    """A report that began before the drain, and looks at the same table to its end."""
    with psycopg.connect(stand.database_url) as report:
        report.isolation_level = IsolationLevel.REPEATABLE_READ
        report.execute("select count(*) from outbox_events")
        yield
