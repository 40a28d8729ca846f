"""How delays grow."""

from hypothesis import given
from hypothesis import strategies as st

from relay.kernel.backoff import Backoff, Delay, Retry, uniform


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


SECONDS = st.floats(min_value=0.001, max_value=1e6)
ATTEMPTS = st.integers(min_value=1, max_value=10**9)


def test_retries_at_the_defaults_of_the_relay() -> None:
    """Five seconds, doubling, and never more than two minutes."""
    retry = Retry(base=5, most=120, jitter=0.5)

    assert [retry.delay(attempt, lambda _: 0) for attempt in range(1, 8)] == [5, 10, 20, 40, 80, 120, 120]
    assert [retry.delay(attempt, lambda most: most) for attempt in range(1, 8)] == [
        5.5,
        10.5,
        20.5,
        40.5,
        80.5,
        120,
        120,
    ]


@given(base=SECONDS, most=SECONDS, jitter=st.floats(min_value=0, max_value=1e6), attempt=ATTEMPTS)
def test_a_retry_never_waits_longer_than_the_most(base: float, most: float, jitter: float, attempt: int) -> None:
    """Clamped after the jitter, not before it; and never shorter than the clamped delay itself."""
    retry = Retry(base, most, jitter)

    delay = retry.delay(attempt)

    assert min(base, most) <= delay <= most
    assert retry.delay(attempt, lambda _: 0) <= delay <= retry.delay(attempt, lambda most: most)


@given(base=SECONDS, most=SECONDS, attempt=ATTEMPTS)
def test_a_later_attempt_never_waits_shorter(base: float, most: float, attempt: int) -> None:
    """Without jitter the delays double, exactly, until they are the most."""
    retry = Retry(base, most, jitter=0)

    now, then = retry.delay(attempt), retry.delay(attempt + 1)

    assert then == min(most, 2 * now)


@given(base=SECONDS, most=SECONDS, attempt=st.integers(max_value=1))
def test_there_is_no_attempt_before_the_first(base: float, most: float, attempt: int) -> None:
    """A number below one waits as the first does."""
    assert Retry(base, most, jitter=0).delay(attempt) == min(base, most)


def test_the_billionth_attempt_has_a_delay() -> None:
    """Whatever the number of attempts that somebody allows, no float overflows, and nothing takes long."""
    retry = Retry(base=5, most=120, jitter=0.5)

    assert {retry.delay(attempt) for attempt in (1_025, 10**6, 10**9, 10**30)} == {120}
