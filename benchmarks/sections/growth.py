"""Whether a drain is slower beside what was published before, and under a snapshot that somebody keeps open."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.conninfo import make_conninfo

from benchmarks import backlog
from benchmarks.contest import ContestError
from benchmarks.drains import RELAY, UNIT, warm_up
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand
from relay.outbox import schema

TITLE = "Draining beside what was published before"
SECTION = "growth"
_BYTES, _PUBLISHED_BYTES = 400, 100
_EVENTS, _QUICK_EVENTS = 100_000, 20_000
_HELD_EVENTS, _QUICK_HELD_EVENTS = 200_000, 50_000
_CHUNK = 500_000
_MILLION = 1_000_000
_WARM_UP = 20_000
_TABLES = {"empty": 0, "1 M published": _MILLION, "10 M published": 10 * _MILLION}
_QUICK_TABLES = {"empty": 0, "1 M published": _MILLION}
# What is at the tenths of a drain, by the moments at which the relay has marked the rows.
_TENTHS = """
with marked as (
    select published_at, row_number() over (order by published_at, id) as place, count(*) over () as rows
      from outbox_events
     where published_at is not null
)
select max(rows) / 10 / date_part('epoch', max(published_at) filter (where place <= rows / 10) - min(published_at)),
       max(rows) / 10 / date_part('epoch', max(published_at)
                                           - max(published_at) filter (where place <= rows - rows / 10))
  from marked
"""


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
        kinds = {name: partial(_drained, place, events) for name, place in beside.items()}
        for name, values in in_turns(size.rounds, kinds).items():
            yield Figure(SECTION, name, UNIT, values)
    if size.quick:
        yield Figure(SECTION, "10 M published", UNIT, skipped="takes minutes to fill")
    rounds = [_under_a_snapshot(stand, _QUICK_HELD_EVENTS if size.quick else _HELD_EVENTS) for _ in range(size.rounds)]
    first, last = zip(*rounds, strict=True)
    yield Figure(SECTION, "held snapshot, first tenth", UNIT, first)
    yield Figure(SECTION, "held snapshot, last tenth", UNIT, last)


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


def _drained(stand: Stand, events: int) -> float:
    """Events a second. What was drained is removed, so that the table is of the same size in each round."""
    url = stand.database_url
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select coalesce(max(id), 0) from outbox_events").fetchone()
        before = row[0] if row else 0
        backlog.fill(url, events, _BYTES)
        backlog.settle(url)
        seconds = _drain(stand, events)
        connection.execute("delete from outbox_events where id > %s", (before,))
        return events / seconds


def _under_a_snapshot(stand: Stand, events: int) -> tuple[float, float]:
    """Events a second in the first and in the last tenth of a drain, beside a report that began before it."""
    url = stand.database_url
    backlog.empty(url)
    backlog.fill(url, events, _BYTES)
    backlog.settle(url)
    with psycopg.connect(url) as report:
        report.isolation_level = IsolationLevel.REPEATABLE_READ
        report.execute("select count(*) from outbox_events")
        _drain(stand, events)
    with psycopg.connect(url) as connection:
        row = connection.execute(_TENTHS).fetchone()
    if row is None:
        raise ContestError("nothing was drained")
    return float(row[0]), float(row[1])


def _drain(stand: Stand, events: int) -> float:
    with stand.topic(events) as topic:
        contestant = stand.start(RELAY, topic)
        contestant.go()
        answer = contestant.answer()
    left = backlog.pending(stand.database_url)
    if (answer["events"], left) != (events, 0):
        raise ContestError(f"the relay published {answer['events']} of {events} events and left {left} of them pending")
    return float(answer["seconds"])
