"""How long after its commit an event is taken by the broker, while the same process exports an archive."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import psycopg

from benchmarks.contest import ContestError
from benchmarks.drains import warm_up
from benchmarks.figures import Figure, Size
from benchmarks.sections import latency
from benchmarks.sections.latency import Found, Pace
from benchmarks.stand import Stand

TITLE = "Latency beside an export"
SECTION = "exports"
ALONE, BESIDE = "alone", "beside an export"
PROGRAM = "benchmarks.relay_latency"
PACE, QUICK = Pace(200, 60), Pace(200, 10)
# Of rows like events, in the month that is exported.
_ROWS, _QUICK_ROWS = 1_000_000, 300_000
_WARM_UP = 20_000
_SHELF = """
    create schema if not exists archive;
    create table archive.parcels (id bigint, at timestamptz not null, payload jsonb) partition by range (at);
    comment on table archive.parcels is 'public.parcels';
    create table archive.parcels_2026_01 partition of archive.parcels
        (primary key (id)) for values from ('2026-01-01+00') to ('2026-02-01+00');
    create table archive.parcels_2026_02 partition of archive.parcels
        (primary key (id)) for values from ('2026-02-01+00') to ('2026-03-01+00');
    insert into archive.parcels select 0, '2026-02-02+00', '{}';
"""
_FILL = """
    insert into archive.parcels
    select i, '2026-01-02+00', jsonb_build_object('event_id', md5(i::text), 'note', repeat(md5(i::text), 10))
      from generate_series(%(first)s, %(last)s) as i
"""
_EMPTY = """
    do $$
    declare
        made regclass;
    begin
        if to_regnamespace('archive') is not null then
            for made in select oid from pg_class where relnamespace = 'archive'::regnamespace and relkind in ('r', 'p')
                                                   and not relispartition
            loop
                execute format('drop table %s', made);
            end loop;
        end if;
    end
    $$;
    truncate archive_exports, relay_runs, relay_schedule;
"""
_CHUNK = 100_000


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """With and without, in turns."""
    warm_up(stand, _WARM_UP)
    # An emulator is slow at first also where little comes.
    latency.run(stand, QUICK, PROGRAM)
    found: dict[str, list[Found]] = {ALONE: [], BESIDE: []}
    for number in range(size.rounds):
        for name in reversed(list(found)) if number % 2 else found:
            found[name].append(_taken(stand, size, exporting=name == BESIDE))
    for name, rounds in found.items():
        yield from latency.figures(SECTION, name, rounds)
    _empty(stand.database_url)


def _taken(stand: Stand, size: Size, *, exporting: bool) -> Found:
    _empty(stand.database_url)
    pace, rows = (QUICK, _QUICK_ROWS) if size.quick else (PACE, _ROWS)
    # The rows are there in either case: to store them takes the server's time, also a while afterwards.
    _fill(stand.database_url, rows)
    if not exporting:
        return latency.run(stand, pace, PROGRAM)
    with TemporaryDirectory() as folder:
        taken = latency.run(stand, pace, PROGRAM, RELAY_APP="benchmarks.exporting:jobs", ARCHIVE_BUCKET=folder)
    with psycopg.connect(stand.database_url) as connection:
        found = connection.execute(
            "select status, counters ->> 'exported_rows' from relay_runs where job = 'export'"
        ).fetchall()
    # It has gone on until the process ended, or nothing was measured.
    if len(found) != 1 or int(found[0][1] or 0) < rows:
        raise ContestError(f"there was no export all the while: {found}")
    return taken


def _fill(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_SHELF.encode())
        for first in range(1, rows + 1, _CHUNK):
            connection.execute(_FILL, {"first": first, "last": min(first + _CHUNK - 1, rows)})
        connection.execute("vacuum (analyze) archive.parcels")
        connection.execute("checkpoint")


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_EMPTY.encode())
