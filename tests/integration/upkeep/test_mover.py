"""Rows that are over leave their table, page after page, and none is lost or doubled on the way."""

import asyncio
from typing import Any

import psycopg
import pytest

from relay.errors import ConfigurationError, MoveError
from relay.upkeep.table import Child, Table
from tests.support.moving import Hurried, asked, do, move

SOURCES = """
    create table sources (
        id         bigint generated always as identity primary key,
        name       text not null,
        created_at timestamptz not null,
        seen_at    timestamptz
    )
"""
# The first n are a hundred days old, one an hour; the others of today.
ROWS = """
    insert into sources (name, created_at, seen_at)
    select 'name ' || n, at, at
      from generate_series(1, {old} + {young}) as n
     cross join lateral (
           select case when n <= {old} then now() - interval '100 days' + n * interval '1 hour' else now() end
           ) as times(at)
"""


def sources(**changed: Any) -> Table:
    """The description of the table."""
    return Table(**{"name": "sources", "age": "seen_at", "older_than": "30d", "born": "created_at", **changed})


@pytest.fixture
def filled(database: str) -> str:
    do(database, SOURCES, ROWS.format(old=25, young=12))
    return database


async def test_rows_that_are_over_move_into_the_archive(filled: str) -> None:
    """By the months of their age; the walk ends where the young ones begin."""
    before = set(asked(filled, "select sources::text from sources"))
    moved = await move(filled, sources(batch=5))

    assert (moved.read, moved.moved, moved.finished) == (30, 25, True)
    assert asked(filled, "select count(*) from sources") == [12]
    left, gone = (asked(filled, f"select s::text from {table} as s") for table in ("sources", "archive.sources"))
    assert set(left) | set(gone) == before
    assert len(left) + len(gone) == len(before)
    months = asked(filled, "select to_char(seen_at at time zone 'UTC', '\"sources_\"YYYY_MM') from archive.sources")
    assert months == asked(filled, "select tableoid::regclass::text from archive.sources") or set(months) == {
        name.removeprefix("archive.") for name in asked(filled, "select tableoid::regclass::text from archive.sources")
    }
