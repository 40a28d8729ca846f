"""The order in which a relay goes to sleep and wakes, on a session that follows a script, in time that jumps."""

import asyncio
from itertools import pairwise

import pytest

from relay.errors import ConfigurationError
from relay.outbox.events import ListenConnected, ListenLost, Looked
from relay.outbox.listening import GRACE_SECONDS, DeafError, Look
from tests.unit.kernel.fakes import in_fake_time
from tests.unit.outbox.sleeping import (
    DUE,
    GONE,
    LONGEST,
    NOTHING,
    PASS_SECONDS,
    POLL,
    SILENT,
    UNSETTLED,
    Bench,
    Hung,
    Scripted,
    later,
)


@in_fake_time
async def test_the_look_follows_the_lock_and_the_lock_is_gone_before_the_pass() -> None:
    """Whatever was stored before the lock is looked for after it; whoever works makes nobody notify."""
    session = Scripted(DUE)
    bench = Bench(session)

    assert await bench.rest() == 0

    assert session.steps == ["lock", "look", "unlock"]
    assert len(bench.rewound) == 1
    assert bench.told == [ListenConnected("db:5432/app")]


@in_fake_time
async def test_it_looks_again_until_everything_from_before_the_lock_has_ended() -> None:
    """Soon at first, and not for as long as somebody keeps a transaction open; then it waits to be told."""
    session = Scripted(*[UNSETTLED] * 70, NOTHING)
    bench = Bench(session)
    later(100.0, session.emit)

    assert await bench.rest() == 100.0

    pauses = [round(then - now, 3) for now, then in pairwise(session.looked_at)]
    assert pauses[:8] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.04, 0.04]
    assert sum(pauses[:54]) < 2.0 <= sum(pauses[:56])
    assert pauses[60:69] == [0.5] * 9
    assert set(pauses[70:-1]) == {LONGEST}
    assert session.steps == ["lock", *["look"] * len(session.looked_at), "unlock"]
    assert bench.seen.count(Looked()) == len(session.looked_at) - 1


@in_fake_time
async def test_a_notification_cuts_every_wait_short() -> None:
    """Also while it is not settled yet."""
    for found in (NOTHING, UNSETTLED):
        session = Scripted(found)
        bench = Bench(session)
        later(3.0002, session.emit)
        assert await bench.rest() == 3.0002
        assert session.steps[-1] == "unlock"
        assert len(bench.rewound) == 1


@in_fake_time
async def test_what_was_told_before_the_lock_wakes_nobody() -> None:
    """The look after the lock sees what it was about."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    session.tell()
    session.news.clear()
    later(7.0, session.emit)

    assert await bench.rest() == 7.0


@in_fake_time
async def test_an_operators_call_is_never_forgotten() -> None:
    """What it is about may lie below the floors, where no look sees it."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    session.tell(called=True)
    assert await bench.rest() == 0
    assert session.steps == []

    session.other_sleeps = 9
    session.tell(called=True)
    assert await bench.rest() == 0.01
    assert (bench.restarted, bench.rewound) == (2, [])


@in_fake_time
async def test_calls_about_nothing_are_no_spin() -> None:
    """Longer and longer pauses, up to the poll's: a pass that starts at the first row is dear."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    rested: list[float] = []
    for _ in range(9):
        later(0.001 if rested else 0, lambda: session.tell(called=True))
        rested.append(round(await bench.rest(), 2))
    assert rested == [0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, POLL, POLL]
    session.tell(called=True)
    assert await bench.rest(worked=2) == 0.001


@in_fake_time
async def test_it_sleeps_until_the_next_row_is_due_and_no_longer() -> None:
    """Seconds are the database's."""
    session = Scripted(NOTHING._replace(due_in_seconds=12.5), DUE)
    assert await Bench(session).rest() == 12.5


@in_fake_time
async def test_asleep_it_looks_now_and_then_and_keeps_the_lock() -> None:
    """That look is also what proves that the connection lives."""
    session = Scripted(NOTHING, NOTHING, NOTHING, DUE)
    assert await Bench(session).rest() == 3 * LONGEST
    assert session.steps == ["lock", "look", "look", "look", "look", "unlock"]


@in_fake_time
async def test_a_pass_is_due_now_and_then_whatever_can_be_seen() -> None:
    """Rows that somebody inserted by hand may lie below the floors."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    assert await bench.rest() == PASS_SECONDS
    assert session.steps[-1] == "unlock"
    bench.restarts_in = 7.0
    assert await bench.rest() == 7.0
    bench.restarts_in = -1.0
    assert [await bench.rest() for _ in range(3)] == [POLL] * 3


@in_fake_time
async def test_while_another_sleeps_it_polls_and_tries_again() -> None:
    """An emitter has the lock for a moment only, so it is tried some times; then it is another relay's."""
    session = Scripted(DUE, other_sleeps=4)
    bench = Bench(session)
    session.looks = (NOTHING,)
    assert await bench.rest() == POLL + 0.002
    assert await bench.rest() == POLL
    session.tell()  # the other one is told
    session.news.clear()
    later(3.0, session.emit)

    assert await bench.rest() == 3.0
    assert session.steps[:5] == ["refused"] * 4 + ["lock"]


@in_fake_time
async def test_a_lock_that_an_emitter_has_for_a_moment_is_tried_again() -> None:
    """Else an event would wait for the next poll."""
    session = Scripted(DUE, other_sleeps=2)
    assert await Bench(session).rest() == 0.002
    assert session.steps == ["refused", "refused", "lock", "look", "unlock"]


@in_fake_time
async def test_under_a_steady_load_nobody_has_to_notify() -> None:
    """After work there is a moment in which more may come, and a glance before the lock is taken."""
    session = Scripted(DUE)
    bench = Bench(session)
    assert [await bench.rest(worked=9) for _ in range(100)] == [0.001] * 100
    assert session.steps == ["glance"] * 100
    assert len(bench.rewound) == 100


@in_fake_time
async def test_what_is_due_and_cannot_be_taken_is_polled_for() -> None:
    """Rows that another relay has locked, or of a topic that takes nothing: no spin, and no long sleep either."""
    session = Scripted(DUE)
    bench = Bench(session)

    assert [await bench.rest() for _ in range(6)] == [0, *[POLL] * 5]
    # Meanwhile others are told of as ever, and what is due earlier is.
    later(0.1, lambda: session.tell(DUE._replace(claimable=(6, 5))))
    assert await bench.rest() == pytest.approx(0.1)
    session.looks = (DUE._replace(due_in_seconds=0.2), DUE._replace(claimable=(7, 5)))
    session.turn = 0
    assert await bench.rest() == pytest.approx(0.21)
    # What is found between two polls although nobody told of it, as it was stored before the lock.
    session.looks = (*[DUE._replace(settled=False)] * 9, DUE._replace(claimable=(8, 5)))
    session.turn = 0
    assert await bench.rest() < POLL / 2


@in_fake_time
async def test_what_could_not_be_taken_is_new_again_once_it_was_gone() -> None:
    """Another relay has put it off, and now it is due once more."""
    session = Scripted(DUE)
    bench = Bench(session)
    assert await bench.rest() == 0
    later(0.1, lambda: session.tell(NOTHING))
    later(0.3, lambda: session.tell(DUE))
    assert await bench.rest() == 0.3


@in_fake_time
async def test_of_many_keys_each_is_visited_before_it_sleeps_long_and_after_each_notification() -> None:
    """Each look goes on behind the key at which the last one ended."""
    parts = [NOTHING._replace(last_key=key) for key in ("c", "f", None)]
    session = Scripted(*parts, *parts)
    bench = Bench(session)
    session.looks = parts
    later(9.0, lambda: session.tell(*parts))
    later(12.0, lambda: session.tell(*parts[:2], DUE))
    assert await bench.rest() == pytest.approx(12.0, abs=0.01)
    assert [place.after for place in session.places] == ["", "c", "f"] * 3
    later(LONGEST + 1, session.emit)
    session.looks, session.turn = [*parts] * 2, 0
    assert await bench.rest() == pytest.approx(LONGEST + 1, abs=0.05)
    assert [place.after for place in session.places[9:-1]] == ["", "c", "f"] * 2
    assert session.looked_at[2] - session.looked_at[0] < 0.01


@in_fake_time
async def test_once_nothing_is_due_any_more_it_sleeps() -> None:
    """The one that had locked the rows has published them."""
    session = Scripted(DUE, DUE, NOTHING)
    bench = Bench(session)
    later(50.0, session.emit)

    assert [await bench.rest() for _ in range(2)] == [0, 50.0]


@in_fake_time
async def test_notifications_about_what_cannot_be_taken_lead_to_looks_and_not_to_passes() -> None:
    """Events for later, or behind a key that is blocked: the relay stays asleep, and what else comes is not late."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    session.noisy = True
    later(3.0, lambda: session.tell(NOTHING._replace(due_in_seconds=0.007), DUE))

    assert await bench.rest() == pytest.approx(3.007, abs=0.05)

    assert [session.steps[0], session.steps[-1]] == ["lock", "unlock"]
    assert session.steps.count("lock") == 1
    pauses = [round(then - now, 3) for now, then in pairwise(session.looked_at)]
    assert pauses[:6] == [0.0, 0.01, 0.02, 0.04, 0.04, 0.04]
    assert min(pauses[1:-1]) >= 0.01
    assert pauses[-1] == 0.007


@in_fake_time
async def test_one_notification_after_a_quiet_time_is_looked_at_at_once() -> None:
    """Also the second and the third."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    for seconds in (1.0, 2.0, 3.0):
        later(seconds, session.tell)
    later(4.0, session.emit)
    assert await bench.rest() == 4.0
    assert [at - session.looked_at[0] for at in session.looked_at] == [0.0, 1.0, 2.0, 3.0, 4.0]


@in_fake_time
async def test_a_topic_that_waits_for_its_probe_keeps_it_from_sleeping_long() -> None:
    """No event announces the time of a probe."""
    session = Scripted(NOTHING)
    bench = Bench(session)
    bench.closed = (["bad"], ["order.paid"])
    assert [await bench.rest() for _ in range(3)] == [POLL] * 3
    assert "lock" in session.steps


@in_fake_time
async def test_a_lost_connection_is_told_once_and_the_loop_polls() -> None:
    """At once the first time; then at its pace, while the connection is tried again and again."""
    first = Scripted(NOTHING, GONE)
    last = Scripted(NOTHING)
    bench = Bench(first, *[OSError("refused")] * 3, last)
    assert await bench.rest() == LONGEST
    assert first.steps == ["lock", "look", "error", "close"]

    assert [await bench.rest() for _ in range(9)] == [POLL] * 9
    assert bench.told == [ListenConnected("db:5432/app"), ListenLost(GONE, 0.5)]
    later(40.0, last.emit)
    while bench.opened < 5:
        rested = await bench.rest()
    assert rested > POLL
    assert [type(event) for event in bench.told] == [ListenConnected, ListenLost, ListenConnected]


@in_fake_time
async def test_a_server_that_accepts_and_fails_is_not_hammered() -> None:
    """A session that did not last is followed by a longer and longer pause."""
    bench = Bench(Scripted(GONE))
    ended = asyncio.get_running_loop().time() + 300
    while asyncio.get_running_loop().time() < ended:
        await bench.rest()
    assert bench.opened <= 16


@in_fake_time
async def test_a_pooler_that_swallows_notifications_is_tried_again_after_minutes() -> None:
    """Each attempt takes a connection of it for some seconds; meanwhile the relay polls."""
    bench = Bench(DeafError("nothing was heard"))
    began = asyncio.get_running_loop().time()
    tried: list[float] = []
    while len(tried) < 6:
        before = bench.opened
        assert await bench.rest() == POLL
        if bench.opened > before:
            tried.append(asyncio.get_running_loop().time() - began)
    assert [round(then - now) for now, then in pairwise(tried)] == [30, 60, 120, 240, 300]
    assert [type(event) for event in bench.told] == [ListenLost]


@in_fake_time
async def test_the_relay_polls_while_it_connects() -> None:
    """A database that does not answer must not stop what may still work."""

    async def slowly() -> None:
        await asyncio.sleep(1.2)

    session = Scripted(NOTHING)
    bench = Bench(session)
    bench.opening = slowly
    later(9.0, session.emit)

    assert [await bench.rest() for _ in range(3)] == [POLL, POLL, 9.0 - 2 * POLL]
    assert bench.opened == 1


@pytest.mark.parametrize("found", [NOTHING, UNSETTLED, DUE])
@in_fake_time
async def test_stopping_ends_every_rest_at_once(found: Look) -> None:
    """And leaves no session behind."""
    session = Scripted(found)
    bench = Bench(session)
    await bench.rest() if found is DUE else None
    later(0.2, bench.wake.set)
    assert await bench.rest() == 0.2
    assert await bench.rest() == 0
    await bench.sleeper.close()
    assert session.steps[-2:] == ["look", "close"]
    assert bench.opened == 1


@in_fake_time
async def test_stopping_waits_a_moment_only_for_a_statement_that_is_not_answered() -> None:
    """The connection is cut, and nobody is told of a loss."""
    session = Scripted(SILENT)
    bench = Bench(session)
    later(1.0, bench.wake.set)
    assert await bench.rest() == 1.2
    assert session.steps == ["lock", "close"]
    assert bench.told == [ListenConnected("db:5432/app")]


@in_fake_time
async def test_a_session_that_the_server_ended_as_the_process_hung_is_no_loss() -> None:
    """It is made anew at once, and nobody is told but of the new one."""
    second = Scripted(NOTHING)
    bench = Bench(Hung(NOTHING), second)
    assert await bench.rest() == LONGEST + GRACE_SECONDS
    later(5.0, second.emit)
    assert await bench.rest() == 5.0
    assert bench.told == [ListenConnected("db:5432/app")] * 2


@in_fake_time
async def test_closing_ends_a_session_that_is_being_made() -> None:
    """Whether it is there by then or not."""

    async def forever() -> None:
        await asyncio.Event().wait()

    bench = Bench(ConfigurationError("never reached"))
    bench.opening = forever
    assert await bench.rest() == POLL
    await bench.sleeper.close()
    assert bench.told == []
