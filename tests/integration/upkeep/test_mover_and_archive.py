"""What a mover puts aside is exported while it goes on moving: no row is in two places, and none in none."""

import asyncio
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path

from relay.upkeep.archive import months
from relay.upkeep.table import Table
from relay.upkeep.table_name import TableName
from tests.support.archives import archive, differences
from tests.support.moving import asked, do, move

# Of January to March, two years ago; types of the user's own, and names that need quotes.
SOURCES = """
    create schema "Shop";
    create type "Shop".mood as enum ('fine', 'so, so');
    create table "Shop"."Old Sources" (
        id        bigint generated always as identity primary key,
        "user"    "Shop".mood not null default 'so, so',
        seen_at   timestamptz,
        twice     bigint generated always as (length(name) * 2) stored,
        name      text not null
    );
    insert into "Shop"."Old Sources" (name, seen_at)
    select 'name ' || n, '2024-01-01'::timestamptz + n * interval '1 hour' from generate_series(1, 2000) as n;
    create table kept as table "Shop"."Old Sources"
"""
TABLE = Table(name='Shop."Old Sources"', age="seen_at", older_than="30d", batch=50)
ROWS, PAGES = 2000, 3
MONTHS = [date(2024, month, 1) for month in (1, 2, 3)]


async def test_months_are_exported_while_they_are_moved_to(database: str, tmp_path: Path) -> None:
    """Each is sealed again and again; what comes later is another part."""
    do(database, SOURCES)
    files = archive(database, tmp_path)

    def export() -> None:
        for origin in files.origins():
            for partition in files.standing(origin).waiting:
                files.export(origin, partition.month)

    moved = 0
    while moved < ROWS:
        some, _ = await asyncio.gather(move(database, TABLE, until=_after(PAGES)), asyncio.to_thread(export))
        moved += some.moved
    await asyncio.to_thread(export)

    (origin,) = files.origins("Old Sources")
    standing = files.standing(origin)
    assert len(standing.exports) > ROWS // (TABLE.batch * PAGES) // 2
    assert standing.waiting == []
    assert {export.month for export in standing.exports} == set(MONTHS)
    assert sum(export.rows or 0 for export in standing.exports) == ROWS
    do(database, "create table back (like kept)")
    for month in MONTHS:
        into = TableName("public", f"back_{months.in_names(month)}")
        files.restore(origin, month, into=into)
        do(database, f"insert into back select * from {into}")  # noqa: S608 -- a test's own words
    assert differences(database, "kept", "back") == 0
    assert asked(database, 'select count(*) from "Shop"."Old Sources"') == [0]


def _after(pages: int) -> Callable[[], bool]:
    """Whether it was asked that often."""
    asked_about = count(1)
    return lambda: next(asked_about) > pages
