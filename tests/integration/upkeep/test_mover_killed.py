"""Whenever a mover ends, and however often: each row is in one place, as it was."""

import asyncio
import random
from typing import Any

import psycopg
import pytest

from relay.kernel.clock import SystemClock
from relay.upkeep.mover import Moved
from relay.upkeep.table import Child, Table
from tests.support.moving import Hurried, asked, do, move, where_they_are

KILLS = 12
KEYS = {
    "id": "id bigint primary key",
    "uuid": "id uuid primary key",
    "pair": "id bigint, part text, primary key (part, id)",
}
FILL = """
    insert into things (id{part}, at, note)
    select {id}{value}, now() - random() * interval '120 days', repeat(n::text, 1 + n % 50)
      from generate_series(1, 400) as n;
    insert into bits select row_number() over (), {parent}, t.at from things as t cross join generate_series(1, 2)
"""
BITS = "create table bits (id bigint primary key, thing {type} not null, at timestamptz not null)"


def make(database: str, key: str) -> Table:
    """A table of 400 rows with 800 children, and its description."""
    pair = key == "pair"
    do(database, f"create table things ({KEYS[key]}, at timestamptz not null, note text, state text default 'new')")
    do(database, BITS.format(type="text" if pair else "uuid" if key == "uuid" else "bigint"))
    do(database, "create index on bits (thing)")
    do(
        database,
        FILL.format(
            part=", part" if pair else "",
            id="gen_random_uuid()" if key == "uuid" else "n",
            value=", 'p' || n % 7" if pair else "",
            parent="t.part || t.id" if pair else "t.id",
        ),
    )
    children = () if pair else (Child("bits", "thing", "at"),)
    return Table(name="things", age="at", older_than="30d", batch=4, children=children)


async def disturb(database: str, chance: random.Random, moving: "asyncio.Task[Any]") -> None:
    """Do something bad to it at some moment."""
    await asyncio.sleep(chance.uniform(0, 0.1))
    if chance.random() < 0.5:
        moving.cancel()
        return
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as killer:
        await killer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() and application_name = 'outbox-relay'"
        )


@pytest.mark.parametrize(("key", "seed"), [("id", 1), ("uuid", 2), ("pair", 3)])
async def test_a_mover_that_is_killed_again_and_again_loses_and_doubles_nothing(
    database: str, key: str, seed: int
) -> None:
    """Cancelled, or its connection ended, at random moments."""
    table, chance = make(database, key), random.Random(seed)  # noqa: S311 -- moments, no secret
    tables = ("things", "bits")
    before = where_they_are(database, *tables)
    kills = 0
    while kills < KILLS:
        moving = asyncio.create_task(move(database, table, clock=SystemClock()))
        await disturb(database, chance, moving)
        (ended,) = await asyncio.gather(moving, return_exceptions=True)
        if isinstance(ended, Moved):
            break  # it was quicker
        assert isinstance(ended, asyncio.CancelledError | psycopg.OperationalError)
        kills += 1
    assert kills
    done = await move(database, table, clock=Hurried())
    assert done.finished

    shelved = ["archive.things", *(["archive.bits"] if table.children else [])]
    after = where_they_are(database, *tables, *shelved)
    assert sorted(after["things"] + after["archive.things"]) == before["things"]
    assert sorted(after["bits"] + after.get("archive.bits", [])) == before["bits"]
    assert asked(database, "select count(*) from things where at < now() - interval '30 days 1 hour'") == [0]
