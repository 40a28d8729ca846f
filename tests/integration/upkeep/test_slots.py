"""Whatever clocks do, a slot is taken once."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.postgres.session import Session
from relay.upkeep.database_clock import DatabaseClock
from relay.upkeep.slots import Slots
from relay.upkeep.statements import STATEMENT_SECONDS, statement
from tests.support.jobs import connecting, counted, job_of

names = (f"job{number}" for number in count())

# Which process asks, how the database's clock is moved by then, and how far off that one's own guess of it has come.
STEP = st.tuples(st.integers(0, 2), st.floats(-20, 40), st.sampled_from([0.0, 0.0, -3.0, 3.0, 1e6]))


@given(steps=st.lists(STEP, min_size=2, max_size=12), schedule=st.sampled_from(["1s", "7s", "* * * * *"]))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_whatever_clocks_do_a_slot_is_taken_once(
    database: str, steps: list[tuple[int, float, float]], schedule: str
) -> None:
    """Of three processes, by a database's clock that jumps to and fro; and never before it has come."""
    asyncio.run(_take(database, steps, schedule))


async def _take(database: str, steps: list[tuple[int, float, float]], schedule: str) -> None:
    skew, own = 0.0, [0.0, 0.0, 0.0]
    loop = asyncio.get_running_loop()
    session = Session(connecting(database), statement, "public", lambda: skew, STATEMENT_SECONDS)
    (job,) = job_of(counted, name=next(names), **({"cron": schedule} if "*" in schedule else {"every": schedule}))
    processes = [
        Slots(job, session, DatabaseClock(lambda number=number: loop.time() + own[number]))  # type: ignore[misc]
        for number in range(3)
    ]
    taken: list[datetime] = []
    for number, moved, off in steps:
        skew += moved
        own[number] += off
        slot = await processes[number].take()
        if slot is not None:
            now = datetime.now(UTC) + timedelta(seconds=skew)
            assert slot <= now
            processes[number].use(slot)
            taken.append(slot)
    await session.close()
    assert taken == sorted(set(taken))
