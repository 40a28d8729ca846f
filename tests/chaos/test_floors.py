"""A large drain while somebody holds a transaction open: no claim walks over all that was published before."""

from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.testing.databases import fresh_database
from tests.support.chaos import FULL, sized
from tests.support.drains import Drain, entries_read, fill
from tests.support.outbox import PENDING, count

ROWS = sized(40_000, 1_000_000)
PART = ROWS // 10
# Entries of the index that are visited for each row by claims, sweeps and looks for the safe floor. Without floors they
# are half as many as there are batches.
MOST_VISITS = 20
STEADY = 0.8
TODAY = sized(5_000, 300_000)

pytestmark = pytest.mark.timeout(sized(60, 600))


def held(url: str, statement: str) -> psycopg.Connection[Any]:
    """A transaction that stays open and has done this."""
    connection = psycopg.connect(url)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute(statement.encode())
    return connection


async def in_turns(one: Drain, other: Drain, rows: int) -> tuple[float, float]:
    """The seconds that each takes for so many rows; batch by batch, so that both have the same machine."""
    seconds = [0.0, 0.0]
    for _ in range(rows // one.batch_size):
        for place, drain in enumerate((one, other)):
            seconds[place] += await drain.run(drain.batch_size)
    return seconds[0], seconds[1]


@pytest.mark.slow("drains a large backlog twice")
@pytest.mark.parametrize(
    ("statement", "safe"),
    [("select 1", ROWS // 2), ("select pg_current_xact_id()", 0)],
    ids=["reads", "writes"],
)
async def test_a_transaction_that_is_held_open_does_not_slow_a_drain(
    own_stack: Stack, own_template: str, statement: str, safe: int
) -> None:
    """It keeps an index entry for each row that is published; the last tenth goes out as fast as all of another outbox.

    Where it writes, the safe floor stands, and sweeps walk over everything, for one part in twenty of the time.
    """
    with (
        fresh_database(own_stack.database_url, own_template) as url,
        fresh_database(own_stack.database_url, own_template) as other,
    ):
        fill(url, ROWS)
        fill(other, PART)
        drain, first = Drain(url), Drain(other)
        with held(url, statement), held(other, statement):
            await drain.run(ROWS - PART)
            seconds = await in_turns(first, drain, PART)
            assert drain.floors.fresh == ROWS
            if FULL or not safe:
                assert drain.floors.fresh_safe >= safe
            # What a wake-up pays for.
            fill(url, 1)
            drain.floors.rewind()
            await drain.run()
        await drain.close()
        await first.close()
        assert count(url, PENDING) == 0
        assert entries_read(url, "outbox_events_fresh", ROWS) / ROWS < MOST_VISITS
        print(f"{ROWS} rows, {statement}: the last tenth at {seconds[0] / seconds[1]:.2f} of the first's rate")  # noqa: T201 -- the figure itself
        if FULL:
            assert seconds[1] * STEADY <= seconds[0], seconds


async def test_what_is_scheduled_for_later_costs_nothing_today(own_stack: Stack, own_template: str) -> None:
    """However much of it there is."""
    with (
        fresh_database(own_stack.database_url, own_template) as without,
        fresh_database(own_stack.database_url, own_template) as beside,
    ):
        fill(beside, ROWS, "tomorrow")
        for url in (without, beside):
            fill(url, TODAY)
        drains = Drain(without), Drain(beside)
        seconds = await in_turns(*drains, TODAY)
        for drain in drains:
            await drain.close()
        assert entries_read(beside, "outbox_events_delayed", TODAY) == 0
        assert count(beside, PENDING) == ROWS
        print(f"{TODAY} rows beside {ROWS} for tomorrow take {seconds[1] / seconds[0]:.3f} of the time")  # noqa: T201
        if FULL:
            assert seconds[1] < 1.05 * seconds[0], seconds
