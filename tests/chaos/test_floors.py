"""A large drain while somebody holds a transaction open: no claim walks over all that was published before."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from tests.support.chaos import FULL, sized
from tests.support.drains import Drain, entries_read, fill
from tests.support.outbox import PENDING, PUBLISHED, count
from tests.support.postgres import fresh_database

ROWS = sized(40_000, 1_000_000)
PART = ROWS // 10
# Entries of the index that are visited for each row by claims, sweeps and looks for the safe floor. Without floors they
# are half as many as there are batches.
MOST_VISITS = 20
STEADY = 0.8
ROUNDS = sized(1, 6)
TODAY = sized(5_000, 100_000)

pytestmark = pytest.mark.timeout(sized(60, 600))


@pytest.fixture
def outbox(own_stack: Stack, own_template: str) -> Iterator[str]:
    """A database of its own without autovacuum."""
    with fresh_database(own_stack.database_url, own_template) as url:
        yield url


def held(url: str, statement: str) -> psycopg.Connection[Any]:
    """A transaction that stays open and has done this."""
    connection = psycopg.connect(url)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute(statement.encode())
    return connection


async def test_a_held_snapshot_does_not_slow_a_drain(outbox: str) -> None:
    """A report that runs for hours keeps every index entry; the last rows go out as fast as the first."""
    fill(outbox, ROWS)
    drain = Drain(outbox)
    with held(outbox, "select 1 from outbox_events limit 1"):
        await drain.run()
        safe = drain.floors.fresh_safe
        await drain.close()
    first, last = drain.rates(PART)
    visits = entries_read(outbox, "outbox_events_fresh", ROWS) / ROWS
    assert count(outbox, PUBLISHED) == ROWS
    assert visits < MOST_VISITS
    if FULL:
        assert safe > ROWS * 0.9
        assert last >= STEADY * first, drain.times


async def test_a_held_write_costs_a_drain_its_sweeps_alone(outbox: str) -> None:
    """The safe floor stands, the fast one goes on; sweeps take one part in twenty, and a wake-up pays for one."""
    fill(outbox, ROWS)
    drain = Drain(outbox)
    with held(outbox, "select pg_current_xact_id(), 1 from outbox_events limit 1"):
        await drain.run()
        assert (drain.floors.fresh_safe, drain.floors.fresh) == (0, ROWS)
        drain.floors.rewind()
        fill(outbox, 1)
        await drain.run()
    await drain.close()
    first, last = drain.rates(3 * PART)
    assert count(outbox, PENDING) == 0
    assert entries_read(outbox, "outbox_events_fresh", ROWS) / ROWS < MOST_VISITS
    if FULL:
        assert last >= STEADY * first, drain.times


async def test_what_is_scheduled_for_later_costs_nothing_today(own_stack: Stack, own_template: str) -> None:
    """However much of it there is; drains with and without it take turns."""
    with (
        fresh_database(own_stack.database_url, own_template) as without,
        fresh_database(own_stack.database_url, own_template) as beside,
    ):
        fill(beside, ROWS, "tomorrow")
        seconds: dict[str, list[float]] = {without: [], beside: []}
        for _ in range(ROUNDS):
            for url in (without, beside):
                fill(url, TODAY)
                drain = Drain(url)
                seconds[url].append(await drain.run())
                await drain.close()
        slower = min(seconds[beside]) / min(seconds[without])
        assert entries_read(beside, "outbox_events_delayed", ROUNDS * TODAY) == 0
        assert count(beside, PENDING) == ROWS
        if FULL:
            assert slower < 1.05, seconds
