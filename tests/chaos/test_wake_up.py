"""How soon a relay that sleeps has published what was just committed, late commits included."""

import asyncio
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import IsolationLevel

from relay import emit
from tests.support.bench import Bench
from tests.support.chaos import FULL, sized
from tests.support.outbox import event
from tests.support.sleepers import SleepingRelay

WAKE_UPS = sized(20, 100)
SCHEDULED = sized(10, 50)
# On a machine that does nothing else, all of them; beside other tests, no poll at least, save where the machine stalls.
WITHIN = 0.05 if FULL else 0.4
STALLED = 0.0 if FULL else 0.1
# A relay that is not woken sleeps for half a minute.
LATEST = 10.0


def stored(url: str, number: int, pause: float) -> tuple[str, float]:
    """Commit an event some time after its insert; answer with its id, and when that was."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ if number % 2 else IsolationLevel.READ_COMMITTED
        event_id = str(emit(connection, event(number)).event_id)
        time.sleep(pause)
        connection.commit()
        return event_id, time.monotonic()


def soon(seconds: list[float]) -> bool:
    """Whether all but those that the machine stalled for took no longer than they may, the longest at the end."""
    return seconds[-1 - int(STALLED * len(seconds))] < WITHIN and seconds[-1] < LATEST


@pytest.mark.slow("commits late again and again")
async def test_late_commits_wake_a_relay_that_sleeps(database: str) -> None:
    """Up to half a second after their insert, half of them REPEATABLE READ, some of them while it falls asleep."""
    dice = random.Random(7)  # noqa: S311 -- a test's own
    committed: list[tuple[str, float]] = []
    async with SleepingRelay(Bench(database)).running() as relay:
        await relay.connected()
        with ThreadPoolExecutor(4) as threads:
            running = asyncio.get_running_loop()
            while len(committed) < WAKE_UPS:
                number = len(committed)
                emitters = [
                    running.run_in_executor(threads, stored, database, number + each, dice.uniform(0, 0.5))
                    for each in range(dice.choice([1, 1, 2, 4]))
                ]
                committed += await asyncio.gather(*emitters)
                await asyncio.sleep(dice.choice([0, 0.05, 0.7, 2.5 if FULL else 0.7]))
        await relay.published(*(event_id for event_id, _ in committed))
    took = sorted(relay.broker.taken[event_id] - at for event_id, at in committed)
    print(  # noqa: T201 -- the figure itself
        f"{len(took)} wake-ups: median {statistics.median(took) * 1000:.1f} ms, longest {took[-1] * 1000:.1f} ms"
    )
    assert soon(took), took[-5:]


@pytest.mark.slow("waits for twenty times of day")
async def test_scheduled_events_leave_at_their_time_while_the_relay_sleeps(database: str) -> None:
    """Each is scheduled while the relay sleeps, for some time in the next two seconds; none leaves early."""
    dice = random.Random(11)  # noqa: S311 -- a test's own
    due: list[tuple[str, float]] = []
    async with SleepingRelay(Bench(database)).running() as relay:
        await relay.connected()
        for number in range(SCHEDULED):
            await relay.asleep()
            monotonic, now = time.monotonic(), datetime.now(UTC)  # in this order none seems to leave early
            after = timedelta(seconds=dice.uniform(0.1, 2.0))
            with psycopg.connect(database) as connection:
                emitted = emit(connection, event(number, available_at=now + after))
            due.append((str(emitted.event_id), monotonic + after.total_seconds()))
        await relay.published(*(event_id for event_id, _ in due))
    late = sorted(relay.broker.taken[event_id] - at for event_id, at in due)
    print(  # noqa: T201 -- the figure itself
        f"{len(late)} scheduled events: median {statistics.median(late) * 1000:.1f} ms late, "
        f"at most {late[-1] * 1000:.1f} ms"
    )
    assert late[0] > -0.005  # they need not agree to the millisecond
    assert soon(late), late[-5:]
