"""What the retention of a million published rows costs a drain that goes on beside it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import psycopg

from benchmarks import backlog
from benchmarks.contest import Contestant, ContestError
from benchmarks.databases import count, database
from benchmarks.drains import UNIT, Backlog, task, warm_up
from benchmarks.figures import Figure, Size
from benchmarks.stand import Stand
from relay.outbox import schema

TITLE = "Draining beside a retention of a million rows"
SECTION = "retention"
ALONE, NOWHERE, ARCHIVE = "alone", "beside a retention", "beside a retention into the archive"
MOVED, ARCHIVED = "rows moved beside the drain", "rows archived beside the drain"
_PROGRAM = "benchmarks.retiring"
_BYTES = 400
_EVENTS, _QUICK_EVENTS = 100_000, 60_000
_OLD, _QUICK_OLD = 1_000_000, 300_000
_CHUNK = 100_000
_WARM_UP = 20_000


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """All in turns, on one table; as many as a round has moved are there again before the next one."""
    warm_up(stand, _WARM_UP)
    events, old = (_QUICK_EVENTS, _QUICK_OLD) if size.quick else (_EVENTS, _OLD)
    with database(stand, "bench_retention") as url:
        with psycopg.connect(url) as connection:
            schema.migrate(connection, "public", schema.newest())
        place = replace(stand, database_url=url)
        kinds: dict[str, Callable[[], Sequence[float]]] = {
            ALONE: partial(_drained, place, events, old, ""),
            NOWHERE: partial(_drained, place, events, old, "nowhere"),
            ARCHIVE: partial(_drained, place, events, old, "archive"),
        }
        found: dict[str, list[Sequence[float]]] = {name: [] for name in kinds}
        for number in range(size.most_rounds):
            for name in reversed(list(kinds)) if number % 2 else kinds:
                found[name].append(kinds[name]())
    for name, rounds in found.items():
        yield Figure(SECTION, name, UNIT, tuple(rate for rate, _ in rounds))
    for name, moved in ((NOWHERE, MOVED), (ARCHIVE, ARCHIVED)):
        yield Figure(SECTION, moved, "rows/s", tuple(rate for _, rate in found[name]))


def _drained(stand: Stand, events: int, old: int, to: str) -> Sequence[float]:
    """Events a second, and the old rows that were moved in one meanwhile."""
    _fill(stand.database_url, old)
    asked = task(stand, Backlog(events, _BYTES))
    retiring: list[Contestant] = []

    def fill() -> None:
        if to:
            retiring.append(stand.start(_PROGRAM, RELAY_RETENTION_TO=to))
        asked.fill()
        for contestant in retiring:
            contestant.go()

    try:
        seconds = replace(asked, fill=fill).timed(stand).seconds
        for contestant in retiring:
            contestant.say("end")
        moved = sum(contestant.answer()["moved"] for contestant in retiring)
    except BaseException:  # Ctrl-C, too, leaves no process behind
        for contestant in retiring:
            contestant.end()
        raise
    if to and not 0 < moved < old:
        raise ContestError(f"{moved} of {old} rows were moved while {events} events were drained")
    return events / seconds, moved / seconds


def _fill(url: str, old: int) -> None:
    """Old rows, and nothing else."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from outbox_events where topic is distinct from 'earlier'")
        connection.execute("drop schema if exists archive cascade")
    there = count(url, "select count(*) from outbox_events")
    for first in range(there, old, _CHUNK):
        backlog.fill(url, min(_CHUNK, old - first), _BYTES, published=True)
    backlog.settle(url)
