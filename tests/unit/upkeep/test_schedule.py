"""The slots of a schedule: whoever walks from one to the next, and whoever looks for the latest, find the same ones."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upkeep.schedule import Cron, Every, Schedule

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")
EXPRESSIONS = (
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "*/20 2 * * *",
    "0 */2 * * *",
    "17 */3 * * *",
    "*/20 0 * * *",
    "59 23 * * 6",
    "0 0 1 * *",
)
# The days around which clocks are changed somewhere, and others.
CHANGES = [datetime(2026, *day, tzinfo=UTC) for day in ((3, 8), (3, 29), (4, 4), (10, 3), (10, 25), (11, 1), (7, 1))]
MOMENTS = st.builds(
    lambda day, seconds: day + timedelta(seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-86_400, 2 * 86_400).map(float) | st.floats(-86_400, 2 * 86_400),
)
SCHEDULES: st.SearchStrategy[Schedule] = st.builds(
    Cron.of, st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES)
) | st.builds(Every.of, st.integers(1, 100_000).map(lambda seconds: f"{seconds}s"))


@given(schedule=SCHEDULES, now=MOMENTS)
def test_the_latest_slot_and_the_next_one_stand_side_by_side(schedule: Schedule, now: datetime) -> None:
    """Whoever sleeps until the next one finds that it is the latest as it wakes."""
    latest, following = schedule.latest(now), schedule.next_after(now)
    assert latest is not None
    assert following is not None
    assert latest <= now < following
    assert schedule.latest(following) == following
    assert schedule.next_after(latest) == following
    assert schedule.latest(latest) == latest


@pytest.mark.parametrize(
    ("start", "hours"), [(datetime(2026, 3, 28, 23, tzinfo=UTC), 23), (datetime(2026, 10, 24, 22, tzinfo=UTC), 25)]
)
def test_a_day_of_23_or_25_hours_has_a_slot_for_each(start: datetime, hours: int) -> None:
    """From midnight to midnight in Berlin, of what comes every hour."""
    for schedule in (Cron.of("0 * * * *", "Europe/Berlin"), Every.of("1h")):
        slots, slot = 0, schedule.next_after(start - timedelta(microseconds=1))
        while slot is not None and slot < start + timedelta(hours=hours):
            slots, slot = slots + 1, schedule.next_after(slot)
        assert slots == hours


@pytest.mark.parametrize(
    ("expression", "start", "slots"),
    [
        ("*/20 2 * * *", "2026-04-04 14:00", ["04-04 15:30", "04-04 15:50", "04-04 16:10", "04-05 15:30"]),
        ("*/20 0 * * *", "2026-04-04 14:00", ["04-05 13:30", "04-05 13:50", "04-05 14:10", "04-06 13:30"]),
        ("17 */3 * * *", "2026-04-04 14:00", ["04-04 16:47", "04-04 19:47", "04-04 22:47", "04-05 01:47"]),
        ("*/20 0 * * *", "2026-10-03 14:30", ["10-04 13:00", "10-04 13:20", "10-04 13:40", "10-05 13:00"]),
        ("17 */3 * * *", "2026-10-03 14:00", ["10-03 16:17", "10-03 19:17", "10-03 22:17", "10-04 01:17"]),
        # From within the half hour that comes twice, and behind the one that is skipped.
        ("*/20 23 * * *", "2026-04-04 15:10", ["04-05 12:30", "04-05 12:50", "04-05 13:10", "04-06 12:30"]),
        ("*/20 3 * * *", "2026-10-03 15:48", ["10-03 16:00", "10-03 16:20", "10-03 16:40", "10-04 16:00"]),
    ],
)
def test_no_slot_is_left_out_where_clocks_are_changed_by_half_an_hour(
    expression: str, start: str, slots: list[str]
) -> None:
    """On Lord Howe Island they go back at 15:00 UTC, and forward at 15:30."""
    schedule, found = Cron.of(expression, "Australia/Lord_Howe"), datetime.fromisoformat(f"{start}+00:00")
    for expected in slots:
        following = schedule.next_after(found)
        assert following is not None
        found = following
        assert f"{found:%m-%d %H:%M}" == expected


def test_no_slot_is_left_out_on_a_day_without_midnight() -> None:
    """In Beirut the clocks go forward at midnight, and the first hour of that day is the one from one o'clock on."""
    schedule, found = Cron.of("*/20 1-3 * * 0", "Asia/Beirut"), datetime(2026, 3, 27, tzinfo=UTC)
    slots = []
    for _ in range(4):
        following = schedule.next_after(found)
        assert following is not None
        found = following
        slots.append(f"{found:%m-%d %H:%M}")
    assert slots == ["03-28 22:00", "03-28 22:20", "03-28 22:40", "03-28 23:00"]


def test_intervals_are_counted_from_one_moment_for_all() -> None:
    """Whenever a process began."""
    every = Every.of("7s")
    now = datetime(2026, 5, 5, 5, 5, 5, 5, tzinfo=UTC)
    assert {every.latest(now + timedelta(seconds=7 * n)) - timedelta(seconds=7 * n) for n in range(9)} == {  # type: ignore[operator]
        every.latest(now)
    }


@pytest.mark.parametrize("interval", [timedelta.max, timedelta(days=36_501), 1e12, "999ms", 0])
def test_an_interval_is_a_second_at_least_and_a_century_at_most(interval: timedelta | float | str) -> None:
    """A slot whose date is none would end the process in which its job sleeps."""
    with pytest.raises(ValueError, match=r"an interval is .*; give "):
        Every.of(interval)
    assert Every.of("36500d").next_after(datetime(2099, 12, 5, tzinfo=UTC)) == datetime(2099, 12, 7, tzinfo=UTC)
