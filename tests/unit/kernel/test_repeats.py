"""What goes on failing is told at first, now and then, and when it is over."""

import random

import pytest

from relay.kernel.repeats import BURST, FORGET_SECONDS, MOST_ERRORS, Hold, Recovery, Repeats, Summary, Write


class Clock:
    """Time that a test moves."""

    now = 5_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """One for each test."""
    return Clock()


@pytest.fixture
def repeats(clock: Clock) -> Repeats:
    """Nothing has failed yet."""
    return Repeats(clock, most_subjects=20)


def test_the_first_failure_is_told_and_the_next_is_not(repeats: Repeats) -> None:
    """At once, and once."""
    assert repeats.failed("pass", "publish", "OSError") == Write()
    assert repeats.failed("pass", "publish", "OSError") == Hold()


def test_a_minute_later_it_is_summed_up(repeats: Repeats, clock: Clock) -> None:
    """How often, and since when."""
    repeats.failed("pass", "publish", "OSError")
    clock.now += 59
    assert repeats.failed("pass", "publish", "OSError") == Hold()
    clock.now += 1
    assert repeats.failed("pass", "publish", "OSError") == Summary(3, 60.0, 0)
    assert repeats.failed("pass", "publish", "OSError") == Hold()


def test_a_success_ends_it(repeats: Repeats, clock: Clock) -> None:
    """Once; and a success that ends nothing is none."""
    assert repeats.worked("pass", "publish") is None
    repeats.failed("pass", "publish", "OSError")
    clock.now += 5
    repeats.failed("pass", "publish", "OSError")
    assert repeats.worked("pass", "publish") == Recovery("pass", "publish", 2, 5.0, 0)
    assert repeats.worked("pass", "publish") is None


def test_subjects_do_not_hide_each_other(repeats: Repeats) -> None:
    """Nor do kinds."""
    for kind, subject in [("topic", "a"), ("topic", "b"), ("publish", "a")]:
        assert repeats.failed(kind, subject, "UNAVAILABLE") == Write()
    assert repeats.worked("topic", "b")
    assert repeats.failing("topic", "a")


def test_another_error_is_told_at_once(repeats: Repeats) -> None:
    """The database is back, and now the schema is wrong; going to and fro between both is not news."""
    repeats.failed("pass", "publish", "OSError")
    assert repeats.failed("pass", "publish", "SchemaError") == Write()
    for error in ["OSError", "SchemaError"] * 50:
        assert repeats.failed("pass", "publish", error) == Hold()


def test_errors_that_are_never_alike_do_not_fill_the_log(repeats: Repeats, clock: Clock) -> None:
    """A code with a counter in it, for ten hours."""
    lines = 0
    for count in range(36_000):
        clock.now += 1
        lines += not isinstance(repeats.failed("pass", "publish", count), Hold)
    assert lines <= 600 + BURST + MOST_ERRORS


def test_a_flapping_broker_does_not_fill_the_log(repeats: Repeats, clock: Clock) -> None:
    """Away and back every second for ten hours; the end is told all the same, and only when it is one."""
    lines = 0
    for _ in range(18_000):
        clock.now += 1
        lines += not isinstance(repeats.failed("topic", "orders", "UNAVAILABLE"), Hold)
        clock.now += 1
        lines += repeats.worked("topic", "orders") is not None
        lines += len(repeats.due())
    assert 500 <= lines <= 600 + BURST
    assert not repeats.failing("topic", "orders")

    clock.now += 120
    told = repeats.due()
    assert repeats.due() == []
    assert len(told) <= 1


def test_a_recovery_that_was_kept_back_is_told_later(repeats: Repeats, clock: Clock) -> None:
    """Or at the end of the process: the last word about a topic must be the true one."""
    while repeats.failed("topic", "orders", "UNAVAILABLE") != Hold():
        repeats.worked("topic", "orders")
    clock.now += 1
    assert repeats.worked("topic", "orders") is None
    assert repeats.due() == []

    (told,) = repeats.due(end=True)
    assert (told.subject, told.seconds) == ("orders", 1.0)
    assert repeats.due(end=True) == []


def test_what_has_worked_for_long_begins_anew(repeats: Repeats, clock: Clock) -> None:
    """Tomorrow's outage is news."""
    for _ in range(20):
        repeats.failed("topic", "orders", "UNAVAILABLE")
        repeats.worked("topic", "orders")
    repeats.due(end=True)
    clock.now += FORGET_SECONDS

    assert repeats.failed("topic", "orders", "UNAVAILABLE") == Write()


def test_memory_and_lines_are_bounded_whatever_fails(repeats: Repeats, clock: Clock) -> None:
    """A hundred thousand topics: some one by one, the others together."""
    chance = random.Random(7)  # noqa: S311 -- a choice, no secret
    lines = 0
    for count in range(100_000):
        clock.now += 0.01
        topic = f"topic-{count}"
        lines += not isinstance(repeats.failed("topic", topic, "NOT_FOUND"), Hold)
        if chance.random() < 0.5:
            lines += repeats.worked("topic", topic) is not None
    assert len(repeats) <= 22
    assert lines <= 1_000


def test_a_settled_failure_needs_no_line(repeats: Repeats) -> None:
    """Another line tells of its end."""
    repeats.failed("publish", "orders", "UNAVAILABLE")
    repeats.settle("publish", "orders")
    assert repeats.worked("publish", "orders") is None
    assert repeats.fails("publish") == []
