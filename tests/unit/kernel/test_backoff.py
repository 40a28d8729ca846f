"""How delays grow."""

from relay.kernel.backoff import Backoff, Delay, uniform


def test_a_delay_doubles_up_to_the_most() -> None:
    """One second becomes thirty, and stays there."""
    backoff = Backoff(Delay(first=1, most=30, jitter=0.5), lambda _: 0)

    assert [backoff.next() for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_reset_begins_again() -> None:
    """The delay after a success is the first one."""
    backoff = Backoff(Delay(first=0.5, most=10, jitter=0), lambda _: 0)
    assert [backoff.next() for _ in range(3)] == [0.5, 1, 2]

    backoff.reset()

    assert backoff.next() == 0.5


def test_each_delay_gets_its_own_jitter() -> None:
    """The whole jitter is asked for every time, and added."""
    asked: list[float] = []

    def jitter(seconds: float) -> float:
        asked.append(seconds)
        return len(asked) / 10

    backoff = Backoff(Delay(first=30, most=30, jitter=2), jitter)

    assert [backoff.next() for _ in range(3)] == [30.1, 30.2, 30.3]
    assert asked == [2, 2, 2]


def test_a_first_delay_above_the_most_is_the_most() -> None:
    """A small maximum is kept from the first delay on."""
    backoff = Backoff(Delay(first=5, most=2, jitter=0), lambda _: 0)

    assert [backoff.next(), backoff.next()] == [2, 2]


def test_a_week_of_failures_does_not_overflow() -> None:
    """Doubling ends at the most, whatever the number of repetitions."""
    backoff = Backoff(Delay(first=0.5, most=10, jitter=0), lambda _: 0)

    assert {backoff.next() for _ in range(60_000)} == {0.5, 1, 2, 4, 8, 10}


def test_uniform_jitter_stays_within_its_bounds() -> None:
    """Between nothing and all of it, and not always the same."""
    drawn = {uniform(0.25) for _ in range(1_000)}

    assert all(0 <= seconds <= 0.25 for seconds in drawn)
    assert max(drawn) - min(drawn) > 0.2
