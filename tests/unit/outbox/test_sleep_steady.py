"""How a relay rests while events keep coming: told of each while they are slower than it is, and beyond it polls."""

import asyncio

import psycopg
import pytest

from relay.outbox.events import ListenLost
from tests.unit.kernel.fakes import in_fake_time
from tests.unit.outbox.sleeping import DUE, NOTHING, POLL, Bench, Scripted, later

TRICKLE = 0.005  # seconds between two events, longer than a pass takes


async def trickle(bench: Bench, session: Scripted, events: int) -> list[float]:
    """Events one after another, each taken by a pass that takes no time; answer with how long each rest was."""
    rested = []
    for _ in range(events):
        later(TRICKLE, session.tell)
        rested.append(await bench.rest(worked=1))
    return rested


@in_fake_time
async def test_events_one_after_another_are_told_of_and_the_lock_is_kept() -> None:
    """Each begins a pass at once, with no statement before it and none after it."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    assert await trickle(bench, session, 50) == [TRICKLE] * 50
    assert session.steps == ["lock", "look"]
    assert len(bench.rewound) == 50


@in_fake_time
async def test_a_trickle_that_ends_is_followed_by_sleep() -> None:
    """One look, as somebody may have stored an event before the lock; then the next one is told of again."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 3)
    later(25.0, session.tell)
    assert await bench.rest(worked=1) == 25.0
    assert session.steps == ["lock", "look", "look"]
    assert session.looked_at[-1] - session.looked_at[-2] < 1.0
    assert await trickle(bench, session, 3) == [TRICKLE] * 3
    assert len(session.steps) == 3


@in_fake_time
async def test_a_pass_that_takes_long_does_not_keep_the_lock() -> None:
    """As a backlog does: whoever stores events meanwhile would pay for telling a relay that is awake."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 3)
    assert "unlock" not in session.steps
    await asyncio.sleep(0.03)
    assert session.steps[-1] == "unlock"
    assert await trickle(bench, session, 2) == [TRICKLE] * 2
    assert session.steps == ["lock", "look", "unlock", "lock", "look"]


@in_fake_time
async def test_where_events_come_faster_than_passes_nobody_has_to_tell() -> None:
    """The relay is told again before it comes to rest, time after time: it gives the lock back and polls."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 1)
    rested = []
    for _ in range(6):
        session.tell(DUE)
        rested.append(await bench.rest(worked=4))
    assert rested == [0, 0, 0.001, 0.001, 0.001, 0.001]
    assert session.steps[2:] == ["unlock", *["glance"] * 4]


@in_fake_time
async def test_a_relay_that_is_hurried_for_a_moment_goes_on_being_told() -> None:
    """A pass may take longer than the next event, now and then."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 1)
    for _ in range(20):
        for _ in range(9):
            session.tell()
            assert await bench.rest(worked=1) == 0
        await trickle(bench, session, 1)
    assert session.steps == ["lock", "look"]


@in_fake_time
async def test_a_fast_stream_that_slows_down_is_told_of_again() -> None:
    """As soon as a pass has found no more than one row: the look behind the lock finds the next one, and that is it."""
    session = Scripted(DUE)
    bench = Bench(session)
    assert [await bench.rest(worked=rows) for rows in (50, 5, 1)] == [0.005, 0.001, 0]
    assert session.steps == ["glance", "lock", "look"]
    assert await trickle(bench, session, 5) == [TRICKLE] * 5
    assert session.steps[3:] == []


@in_fake_time
async def test_the_more_a_pass_finds_the_longer_the_pause_to_the_next() -> None:
    """So that it has more to take than one row, and a slow stream does not wait for it."""
    bench = Bench(Scripted(DUE))
    rested = [await bench.rest(worked=rows) for rows in (2, 10, 20, 100, 300, 301, 100_000, 1)]
    assert rested == [0.001, 0.001, 0.002, 0.01, 0.03, 0.03, 0.03, 0]


@in_fake_time
async def test_a_notification_is_believed_only_after_a_pass_that_did_something() -> None:
    """It may be about an event for later: such a one costs a look, and no further pass."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 3)
    session.noisy = True
    later(3.0, session.emit)
    assert await bench.rest(worked=0) == pytest.approx(3.0, abs=0.05)
    assert session.steps.count("lock") == 1
    assert session.steps[-1] == "unlock"


@in_fake_time
async def test_an_operators_call_in_a_trickle_starts_at_the_first_row() -> None:
    """And is not taken for one of the events."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    await trickle(bench, session, 3)
    later(TRICKLE, lambda: session.tell(called=True))
    assert await bench.rest(worked=1) == TRICKLE
    assert bench.restarted == 1


@in_fake_time
async def test_a_connection_that_is_lost_in_a_long_pass_is_told_of() -> None:
    """It is made anew, and has the lock no more."""
    session, second = Scripted(NOTHING), Scripted(NOTHING)
    bench = Bench(session, second)
    await trickle(bench, session, 3)
    session.unlocking = psycopg.OperationalError("gone")
    await asyncio.sleep(0.03)
    await bench.rest(worked=1)
    assert [type(event) for event in bench.told][-1] is ListenLost
    await asyncio.sleep(1.0)
    assert await trickle(bench, second, 3)
    assert second.steps[:2] == ["lock", "look"]


@in_fake_time
async def test_stopping_in_a_trickle_closes_the_session() -> None:
    """While the lock is kept for the next event, and while a pass takes long."""
    for seconds in (0.0, 0.01, 0.03):
        session = Scripted(NOTHING)
        bench = Bench(session)
        await trickle(bench, session, 3)
        await asyncio.sleep(seconds)
        bench.wake.set()
        assert await bench.rest(worked=1) == 0
        await bench.sleeper.close()
        await asyncio.sleep(POLL)
        assert session.steps[-1] == "close"
