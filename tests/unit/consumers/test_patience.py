"""How long a delivery waits, within the time for which it is kept."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from consumers import Dead, Exponential, Fixed, Received, Retry
from consumers.delivery import Delivery
from consumers.flow import Line
from consumers.job import Job
from consumers.patience import Patience
from consumers.testing import FakeClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def patience(retention: timedelta | None, clock: FakeClock | None = None, jitter: float = 0.0) -> Patience:
    return Patience(retention, clock or FakeClock(NOON), lambda most: most * jitter)


def job(published: datetime | None = NOON) -> Job:
    event: Received[Any] = Received(
        event_id=uuid4(), event_type="a", version=1, occurred_at=NOON, data=None, attributes={}
    )
    return Job(
        Delivery(body=b"", attributes={}, published_at=published.timestamp() if published else 0), event, Line(None, 1)
    )


def test_the_policy_says_when() -> None:
    assert patience(DAY).next_attempt(job(), Exponential(), 3, Retry("no")) == 20
    assert patience(DAY, jitter=1.0).next_attempt(job(), Exponential(), 3, Retry("no")) == 20.5


def test_or_the_handler_does() -> None:
    asked = Retry("no", delay=timedelta(seconds=7))
    assert patience(DAY).next_attempt(job(), Fixed("5s"), 1, asked) == 7


def test_after_the_last_attempt_it_is_dead_with_the_reason_and_the_code() -> None:
    dead = patience(DAY).next_attempt(job(), Fixed("5s", max_attempts=3), 3, Retry("no stock", "STOCK"))
    assert dead == Dead("no attempt is left after 3: no stock", "STOCK")


async def test_nothing_waits_past_what_the_subscription_keeps_less_a_tenth() -> None:
    clock = FakeClock(NOON)
    assert patience(HOUR, clock).deferred(job(), 0, 7_200) == 54 * 60
    await clock.advance(53 * 60)
    assert patience(HOUR, clock).deferred(job(), 0, 7_200) == 60
    await clock.advance(60)
    dead = patience(HOUR, clock).deferred(job(), 0, 1)
    assert isinstance(dead, Dead)
    assert dead.code == "EXPIRES"


def test_the_tenth_is_six_hours_at_most() -> None:
    assert patience(7 * DAY).deferred(job(), 0, 10**9) == (7 * DAY - timedelta(hours=6)).total_seconds()


@pytest.mark.parametrize(("retention", "published"), [(None, NOON), (HOUR, None)])
def test_where_either_is_unknown_there_is_no_bound(retention: timedelta | None, published: datetime | None) -> None:
    assert patience(retention).deferred(job(published), 0, 10**6) == 10**6


async def test_the_longest_duration_counts_from_the_first_attempt_where_that_was_here() -> None:
    clock, policy, waited = FakeClock(NOON), Fixed("1m", max_duration="1h"), job()
    await clock.advance(5 * 3_600)
    assert isinstance(patience(DAY, clock).next_attempt(waited, policy, 2, Retry("no")), Dead)
    waited.first_attempt_at = clock.wall()
    assert patience(DAY, clock).next_attempt(waited, policy, 2, Retry("no")) == 60


async def test_or_from_when_it_was_first_seen_here_where_another_process_made_that() -> None:
    """It may have waited for a consumer that was away."""
    clock, policy, waited = FakeClock(NOON), Fixed("1m", max_duration="1h"), job()
    await clock.advance(5 * 3_600)
    waited.seen_at = clock.wall()
    assert patience(DAY, clock).next_attempt(waited, policy, 2, Retry("no")) == 60
    await clock.advance(3_600)
    assert isinstance(patience(DAY, clock).next_attempt(waited, policy, 3, Retry("no")), Dead)


def test_nothing_was_tried_before_it_was_published() -> None:
    """By whichever clock is ahead."""
    early = job()
    early.seen_at = NOON.timestamp() - 7_200
    assert patience(DAY).next_attempt(early, Fixed("1m", max_duration="1h"), 2, Retry("no")) == 60


async def test_what_is_given_back_and_comes_again_does_not_begin_anew() -> None:
    """Or `max_duration` would never be over where too many rest."""
    clock, policy, fates = FakeClock(NOON), Fixed("20m", max_duration="1h"), []
    known = patience(DAY, clock)
    for attempt in range(1, 5):
        again = job()
        again.delivery.message_id, again.seen_at = "m-1", clock.wall()
        fates.append(known.next_attempt(again, policy, attempt, Retry("no")))
        await clock.advance(20 * 60)
    assert fates[:3] == [1_200] * 3
    assert isinstance(fates[3], Dead)


def test_a_pause_has_up_to_a_tenth_more() -> None:
    assert [patience(None, jitter=part).jittered(10) for part in (0.0, 1.0)] == [10, 11]


def test_a_deferral_too_many_is_the_end_and_none_is_where_there_is_no_bound() -> None:
    bounded = Patience(None, FakeClock(NOON), most_deferrals=2)
    assert [bounded.deferred(job(), count, 5) for count in (0, 1)] == [5, 5]
    dead = bounded.deferred(job(), 2, 5)
    assert isinstance(dead, Dead)
    assert (dead.code, dead.reason) == ("DEFERRED_TOO_OFTEN", "deferred 2 times, and to be deferred once more")
    assert Patience(None, FakeClock(NOON)).deferred(job(), 10**6, 5) == 5


def test_nothing_is_deferred_for_more_than_thirty_days() -> None:
    assert patience(None).deferred(job(), 0, 10**9) == (30 * DAY).total_seconds()
