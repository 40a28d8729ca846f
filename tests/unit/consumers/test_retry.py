"""When a failed event is tried again."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.errors import ConfigurationError, ConsumerError
from consumers.retry import MINUTES_TO_AN_HOUR, Cron, Exponential, Fixed, Linear, RetryPolicy, Series

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
WEEK = timedelta(days=7)
POLICIES: tuple[RetryPolicy, ...] = (
    Fixed("30s"),
    Linear("10s", most="2m"),
    Exponential(),
    Series(),
    Cron("*/5 * * * *"),
)

attempts = st.integers(1, 10**400) | st.integers(1, 40)
fractions = st.floats(0, 1)
delays = st.timedeltas(timedelta(milliseconds=1), WEEK)


def after(policy: RetryPolicy, attempt: int, *, random: float = 0, now: datetime = NOW) -> timedelta | None:
    """The delay after an attempt of an event whose first attempt has only begun."""
    return policy.next(attempt, now, now, lambda: random)


def seconds(policy: RetryPolicy, count: int) -> list[float]:
    """The first delays, without jitter."""
    return [delay.total_seconds() for n in range(1, count + 1) if (delay := after(policy, n)) is not None]


class TestTheDelaysOfEachPolicy:
    """Before anything limits them."""

    def test_fixed_is_always_the_same(self) -> None:
        """Thirty seconds after every attempt."""
        assert seconds(Fixed("30s"), 4) == [30, 30, 30, 30]

    def test_fixed_may_be_at_once(self) -> None:
        """Zero is a delay: try again right away."""
        assert seconds(Fixed(0), 2) == [0, 0]

    def test_linear_grows_by_its_step_up_to_the_most(self) -> None:
        """The most need not be a multiple of the step."""
        assert seconds(Linear("10s", most="35s"), 6) == [10, 20, 30, 35, 35, 35]

    def test_linear_grows_for_a_week_unless_told_otherwise(self) -> None:
        """Its most is the longest delay there is."""
        assert Linear("1d").most == WEEK

    def test_exponential_doubles_from_five_seconds_to_two_minutes(self) -> None:
        """All its defaults."""
        policy = Exponential()
        assert seconds(policy, 7) == [5, 10, 20, 40, 80, 120, 120]
        assert policy.base == timedelta(seconds=5)
        assert policy.most == timedelta(seconds=120)
        assert policy.jitter == timedelta(seconds=0.5)
        assert policy.factor == 2

    def test_exponential_takes_another_factor(self) -> None:
        """Three is as good as two, and one never grows."""
        assert seconds(Exponential(1, factor=3, most=30), 5) == [1, 3, 9, 27, 30]
        assert seconds(Exponential(1, factor=1, most=30), 3) == [1, 1, 1]
        assert after(Exponential(1, factor=1, max_attempts=-1), 10**400) == timedelta(seconds=1)

    def test_series_is_one_to_sixty_minutes_unless_told_otherwise(self) -> None:
        """The last one again and again."""
        minutes = [delay / 60 for delay in seconds(Series(max_attempts=-1), 10)]
        assert minutes == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
        assert Series(MINUTES_TO_AN_HOUR) == Series()

    def test_series_goes_as_it_is_told(self) -> None:
        """Its delays need not grow, and may be written in several ways."""
        assert seconds(Series(["1m", 5, timedelta(0)]), 5) == [60, 5, 0, 0, 0]

    def test_cron_waits_for_the_next_time_that_it_names(self) -> None:
        """Strictly after now: a time that is now is over."""
        policy = Cron("*/5 * * * *")
        assert after(policy, 1) == timedelta(minutes=5)
        assert after(policy, 9, now=NOW + timedelta(minutes=1)) == timedelta(minutes=4)
        assert after(policy, 1, now=NOW - timedelta(microseconds=1)) == timedelta(microseconds=1)

    def test_cron_keeps_to_a_time_that_is_months_away(self) -> None:
        """An earlier attempt would be one that nobody asked for."""
        assert after(Cron("0 0 29 2 *", max_attempts=-1), 1) == datetime(2028, 2, 29, tzinfo=UTC) - NOW


class TestJitter:
    """Many events that failed together come back spread out."""

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (Fixed("30s", jitter="10s"), 35),
            (Linear("10s", jitter="10s"), 15),
            (Exponential(), 5.25),
            (Series(jitter="10s"), 65),
            (Cron("*/5 * * * *", jitter="10s"), 305),
        ],
    )
    def test_it_is_added_to_the_delay(self, policy: RetryPolicy, expected: float) -> None:
        """A random share of the whole."""
        assert after(policy, 1, random=0.5) == timedelta(seconds=expected)

    @pytest.mark.parametrize("policy", [Fixed("30s"), Linear("10s"), Series(), Cron("*/5 * * * *")])
    def test_only_exponential_has_some_unless_told_otherwise(self, policy: RetryPolicy) -> None:
        """Whoever writes 30 s gets 30 s."""
        assert policy.jitter == timedelta(0)

    def test_the_most_is_never_passed_by_it(self) -> None:
        """The delay is clamped after the jitter."""
        assert after(Exponential(), 6, random=1) == timedelta(seconds=120)
        assert after(Linear("10s", most="25s", jitter="10s"), 2, random=1) == timedelta(seconds=25)
        assert after(Fixed(WEEK, jitter="1h"), 1, random=1) == WEEK
        assert after(Series([WEEK], jitter="1h"), 1, random=1) == WEEK


class TestBounds:
    """For whatever numbers."""

    @given(attempts, st.tuples(delays, delays), st.timedeltas(timedelta(0), WEEK), st.floats(1, 1_000), fractions)
    def test_exponential_stays_between_its_base_and_its_most(
        self, attempt: int, ends: tuple[timedelta, timedelta], jitter: timedelta, factor: float, random: float
    ) -> None:
        """However huge the attempt."""
        base, most = sorted(ends)
        policy = Exponential(base, most=most, jitter=jitter, factor=factor, max_attempts=-1)
        delay = after(policy, attempt, random=random)
        assert delay is not None
        assert base <= delay <= most

    @given(st.integers(1, 10**6), delays, delays, st.floats(1, 1_000))
    def test_exponential_never_shrinks_before_jitter(
        self, attempt: int, one: timedelta, other: timedelta, factor: float
    ) -> None:
        """A later attempt waits at least as long."""
        base, most = sorted((one, other))
        policy = Exponential(base, most=most, jitter=0, factor=factor, max_attempts=-1)
        first, second = after(policy, attempt), after(policy, attempt + 1)
        assert first is not None
        assert second is not None
        assert first <= second

    @given(attempts, delays, delays, st.timedeltas(timedelta(0), WEEK), fractions)
    def test_linear_stays_between_its_step_and_its_most(
        self, attempt: int, one: timedelta, other: timedelta, jitter: timedelta, random: float
    ) -> None:
        """However huge the attempt."""
        step, most = sorted((one, other))
        delay = after(Linear(step, most=most, jitter=jitter, max_attempts=-1), attempt, random=random)
        assert delay is not None
        assert step <= delay <= most

    @given(st.integers(1, 10**6), delays, delays)
    def test_linear_never_shrinks_before_jitter(self, attempt: int, one: timedelta, other: timedelta) -> None:
        """A later attempt waits at least as long."""
        step, most = sorted((one, other))
        policy = Linear(step, most=most, max_attempts=-1)
        first, second = after(policy, attempt), after(policy, attempt + 1)
        assert first is not None
        assert second is not None
        assert first <= second

    @given(
        attempts, st.lists(st.timedeltas(timedelta(0), WEEK), min_size=1), st.timedeltas(timedelta(0), WEEK), fractions
    )
    def test_fixed_and_series_stay_within_a_week(
        self, attempt: int, several: list[timedelta], jitter: timedelta, random: float
    ) -> None:
        """The longest delay there is."""
        for policy in (
            Series(several, jitter=jitter, max_attempts=-1),
            Fixed(several[0], jitter=jitter, max_attempts=-1),
        ):
            delay = after(policy, attempt, random=random)
            assert delay is not None
            assert timedelta(0) <= delay <= WEEK

    @given(
        st.sampled_from(["*/5 * * * *", "30 2 * * *", "*/20 2 * * *", "0,30 1-3 * * *", "0 3 * * SUN", "15 * * * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]),
        st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 -- with UTC
    )
    def test_cron_is_always_in_the_future(self, expression: str, timezone: str, now: datetime) -> None:
        """And within eight days, for a time that comes every week at least."""
        delay = after(Cron(expression, timezone), 1, now=now)
        assert delay is not None
        assert timedelta(0) < delay <= timedelta(days=8)

    @given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 -- the same
    def test_cron_names_each_time_and_no_other(self, now: datetime) -> None:
        """Compared with a look at every minute."""
        delay = after(Cron("7-59/13 */3 * * *"), 1, now=now)
        assert delay is not None
        minute = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while not (minute.minute in (7, 20, 33, 46, 59) and minute.hour % 3 == 0):
            minute += timedelta(minutes=1)
        assert now + delay == minute


class TestGivingUp:
    """After so many attempts, or so long."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_ten_attempts_are_made_unless_told_otherwise(self, policy: RetryPolicy) -> None:
        """Nine retries, for as long as they take."""
        assert policy.max_attempts == 10
        assert policy.max_duration is None
        assert after(policy, 9) is not None
        assert after(policy, 10) is None
        assert after(policy, 11) is None

    def test_one_attempt_is_never_repeated(self) -> None:
        """The first one counts."""
        assert after(Fixed("30s", max_attempts=1), 1) is None

    def test_no_limit_is_no_limit(self) -> None:
        """Minus one, for a huge number too."""
        for policy in POLICIES:
            assert after(replace(policy, max_attempts=-1), 10**400) is not None

    def test_no_attempt_begins_later_than_the_longest_duration(self) -> None:
        """An attempt that would is given up at once, not after the wait."""
        policy = Fixed("30s", max_duration="1h")
        first = NOW - timedelta(minutes=59, seconds=30)
        assert policy.next(5, NOW, first, lambda: 0) == timedelta(seconds=30)
        assert policy.next(5, NOW, first - timedelta(microseconds=1), lambda: 0) is None

    def test_the_duration_counts_the_jitter(self) -> None:
        """What is waited for in fact."""
        policy = Fixed("30s", jitter="10s", max_duration="35s")
        assert policy.next(1, NOW, NOW, lambda: 0.5) == timedelta(seconds=35)
        assert policy.next(1, NOW, NOW, lambda: 0.51) is None

    def test_both_limits_hold(self) -> None:
        """Whichever is met first."""
        policy = Fixed("1s", max_attempts=3, max_duration="10s")
        assert policy.next(3, NOW, NOW, lambda: 0) is None
        assert policy.next(2, NOW, NOW - timedelta(seconds=10), lambda: 0) is None

    def test_a_clock_that_went_back_gives_nothing_up(self) -> None:
        """The first attempt may seem to lie ahead."""
        policy = Fixed("30s", max_duration="1m")
        assert policy.next(1, NOW, NOW + timedelta(hours=1), lambda: 0) == timedelta(seconds=30)

    def test_what_counts_is_the_time_that_has_passed_not_what_clocks_show(self) -> None:
        """Between half past one and half past three there is one hour, on one night of the year."""
        policy = Fixed("1m", max_duration="90m")
        before, later = (datetime(2026, 3, 29, hour, 30, tzinfo=BERLIN) for hour in (1, 3))
        assert policy.next(1, later, before, lambda: 0) == timedelta(minutes=1)

    def test_a_duration_from_the_beginning_of_time_is_no_trouble(self) -> None:
        """Nothing is added to a date."""
        policy = Fixed(WEEK, max_attempts=-1, max_duration=timedelta.max)
        last = datetime.max.replace(tzinfo=UTC)
        assert policy.next(1, last, datetime.min.replace(tzinfo=UTC), lambda: 0) == WEEK


class TestWhatTheHandlerAskedFor:
    """Its delay takes the place of the policy's."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_it_is_waited_for_without_jitter(self, policy: RetryPolicy) -> None:
        """Whoever answers "in 90 seconds" means it."""
        assert policy.next(1, NOW, NOW, lambda: 1, asked=timedelta(seconds=90)) == timedelta(seconds=90)

    def test_it_stays_between_zero_and_a_week(self) -> None:
        """A server may answer anything."""
        assert Fixed(1).next(1, NOW, NOW, lambda: 0, asked=timedelta(days=400)) == WEEK
        assert Fixed(1).next(1, NOW, NOW, lambda: 0, asked=timedelta(seconds=-5)) == timedelta(0)

    def test_the_limits_hold_for_it(self) -> None:
        """Asking does not buy another attempt."""
        asked = timedelta(seconds=90)
        assert Fixed(1, max_attempts=2).next(2, NOW, NOW, lambda: 0, asked=asked) is None
        assert Fixed(1, max_duration="1m").next(1, NOW, NOW, lambda: 0, asked=asked) is None


class TestSummerTime:
    """Berlin: 2026-03-29 goes from 02:00 to 03:00, 2026-10-25 from 03:00 back to 02:00."""

    @staticmethod
    def times(expression: str, start: datetime, count: int) -> list[str]:
        """The next times, each after the one before, as Berlin's clocks show them."""
        policy = Cron(expression, "Europe/Berlin")
        found = []
        now = start.astimezone(UTC)
        for _ in range(count):
            delay = after(policy, 1, now=now)
            assert delay is not None
            now += delay
            found.append(now.astimezone(BERLIN).isoformat())
        return found

    def test_a_time_that_is_skipped_is_made_up_for(self) -> None:
        """Half past two does not exist: three o'clock is when it would have been."""
        assert self.times("30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=BERLIN), 2) == [
            "2026-03-29T03:00:00+02:00",
            "2026-03-30T02:30:00+02:00",
        ]

    def test_a_time_that_comes_twice_counts_once(self) -> None:
        """The first time."""
        assert self.times("30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=BERLIN), 2) == [
            "2026-10-25T02:30:00+02:00",
            "2026-10-26T02:30:00+01:00",
        ]

    def test_between_the_two_it_is_over(self) -> None:
        """What failed in the second round waits for the next day, not for an hour that has passed."""
        second_round = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN)
        assert self.times("30 2 * * *", second_round, 1) == ["2026-10-26T02:30:00+01:00"]

    def test_every_so_many_minutes_goes_on_through_both(self) -> None:
        """Neither a gap in spring nor one in autumn."""
        assert self.times("*/30 * * * *", datetime(2026, 3, 29, 1, 15, tzinfo=BERLIN), 3) == [
            "2026-03-29T01:30:00+01:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T03:30:00+02:00",
        ]
        assert self.times("*/30 * * * *", datetime(2026, 10, 25, 2, 15, tzinfo=BERLIN), 4) == [
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:00:00+01:00",
        ]

    def test_the_same_hour_of_the_day_all_year(self) -> None:
        """Six in Berlin is five or four in Greenwich."""
        policy = Cron("0 6 * * *", "Europe/Berlin")
        winter, summer = datetime(2026, 1, 10, tzinfo=UTC), datetime(2026, 7, 10, tzinfo=UTC)
        assert after(policy, 1, now=winter) == timedelta(hours=5)
        assert after(policy, 1, now=summer) == timedelta(hours=4)


class TestHowDurationsAreWritten:
    """All policies read them alike."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("500ms", 0.5),
            ("30s", 30),
            ("2m", 120),
            ("168h", 7 * 86_400),
            ("7d", 7 * 86_400),
            (" 30 s ", 30),
            (2.5, 2.5),
            (30, 30),
            (timedelta(minutes=1), 60),
        ],
    )
    def test_durations_are_read(self, value: timedelta | float | str, expected: float) -> None:
        """A number counts seconds."""
        assert Fixed(value).delay == timedelta(seconds=expected)

    def test_a_long_text_is_a_duration_where_it_is_none_to_wait_for(self) -> None:
        """The whole duration may be a month."""
        assert Fixed(1, max_duration="720h").max_duration == timedelta(days=30)

    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            ("500", "Fixed: delay: '500' has no unit; write 500s or 500ms, or give a number of seconds"),
            ("soon", "Fixed: delay: 'soon' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d"),
            ("", "Fixed: delay: '' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d"),
            (-1, "Fixed: delay: -1 is negative; give zero or more"),
            (timedelta(seconds=-1), "is negative; give zero or more"),
            (float("nan"), "Fixed: delay: nan is not a number of seconds that can be waited for"),
            (float("inf"), "Fixed: delay: inf is not a number of seconds that can be waited for"),
            (10**400, "is not a number of seconds that can be waited for"),
            (True, "Fixed: delay: True is not a duration; give a timedelta, seconds, or a text like 500ms, 30s or 2h"),
            (None, "Fixed: delay: None is not a duration; give a timedelta, seconds, or a text like 500ms, 30s or 2h"),
            ("8d", "Fixed: delay is '8d', longer than 7d; give that or less"),
            ("9" * 5_000, "has no unit; write 999999999s"),
            ("x" * 5_000, f"Fixed: delay: '{'x' * 39}… is not a duration"),
        ],
    )
    def test_anything_else_is_refused(self, value: str, sentence: str) -> None:
        """What, its value, and what to do."""
        with pytest.raises(ConfigurationError) as refusal:
            Fixed(value)
        assert sentence in str(refusal.value)
        assert len(str(refusal.value)) < 300


class TestWhatIsRefused:
    """When it is built, not when the first event fails."""

    @pytest.mark.parametrize(
        ("build", "sentence"),
        [
            (
                lambda: Fixed(1, max_attempts=0),
                "Fixed: max_attempts is 0; give 1 to try once, a larger number to retry, or -1 for no limit",
            ),
            (lambda: Series(max_attempts=-2), "Series: max_attempts is -2; give 1 to try once"),
            (lambda: Cron("* * * * *", max_attempts=True), "Cron: max_attempts is True; give 1 to try once"),
            (lambda: Fixed(1, max_attempts="3"), "Fixed: max_attempts is '3'; give 1 to try once"),  # type: ignore[arg-type]
            (lambda: Fixed(1, max_duration=0), "Fixed: max_duration is 0; give a duration longer than zero"),
            (lambda: Fixed(1, jitter="-1s"), "Fixed: jitter: '-1s' is not a duration"),
            (lambda: Linear(0), "Linear: step is 0; give a duration longer than zero"),
            (lambda: Linear("1m", most="30s"), "Linear: most is 30s, less than its step, 1m; give that or more"),
            (lambda: Exponential("0s"), "Exponential: base is '0s'; give a duration longer than zero"),
            (lambda: Exponential("3m"), "Exponential: most is 2m, less than its base, 3m; give that or more"),
            (lambda: Exponential(factor=0.5), "Exponential: factor is 0.5; give a number from 1 to 1000, like 2"),
            (lambda: Exponential(factor=float("nan")), "Exponential: factor is nan; give a number from 1"),
            (lambda: Exponential(factor=float("inf")), "Exponential: factor is inf; give a number from 1"),
            (lambda: Exponential(factor="2"), "Exponential: factor is '2'; give a number from 1"),  # type: ignore[arg-type]
            (lambda: Series([]), 'Series: delays is []; give a list of durations, like ["1m", "2m", "1h"]'),
            (lambda: Series("1m"), "Series: delays is '1m'; give a list of durations"),
            (lambda: Series(["1m", "soon"]), "Series: delays[1]: 'soon' is not a duration"),
            (
                lambda: Cron("every day"),
                "has 2 fields; write five fields, minute hour day month weekday, like */5 * * * *",
            ),
            (lambda: Cron("* * * * * *"), "Cron: expression is '* * * * * *', which has 6 fields; write five fields"),
            (lambda: Cron("61 * * * *"), "Cron: expression is '61 * * * *', which has a wrong minute (0 to 59); write"),
            (
                lambda: Cron("0 0 31 2 *"),
                "Cron: expression is '0 0 31 2 *', which names a day that its month never has; write five",
            ),
            (lambda: Cron("* * */20 * 1L"), "Cron: expression is '* * */20 * 1L', which names no time within 50 years"),
            (lambda: Cron("9" * 5_000 + " * * * *"), "which is no cron expression; write five fields"),
            (lambda: Cron(None), "Cron: expression is None, which is no cron expression; write five fields"),  # type: ignore[arg-type]
            (
                lambda: Cron("* * * * *", "Berlin"),
                (
                    "Cron: timezone is 'Berlin', which this system does not know; write it like Europe/Berlin or UTC, "
                    "and where the system has no time zones at all, pip install tzdata"
                ),
            ),
            (lambda: Cron("* * * * *", "../../etc/passwd"), "which this system does not know"),
            (lambda: Cron("* * * * *", "Europe"), "which this system does not know"),
            (lambda: Cron("* * * * *", ""), "which this system does not know"),
            (lambda: Cron("* * * * *", None), "which this system does not know"),  # type: ignore[arg-type]
        ],
    )
    def test_it_is_said_what_is_wrong_and_what_to_do(self, build: Callable[[], RetryPolicy], sentence: str) -> None:
        """One sentence for whoever started the consumer."""
        with pytest.raises(ConfigurationError) as refusal:
            build()
        assert sentence in str(refusal.value)
        assert isinstance(refusal.value, ConsumerError)
        assert isinstance(refusal.value, ValueError)

    @given(st.text("0123456789*/,-#LW MONJAN²", max_size=30).map(lambda text: f"{text} * * *"))
    def test_any_text_is_an_expression_or_is_refused(self, text: str) -> None:
        """The library fails in no other way."""
        try:
            policy = Cron(text)
        except ConfigurationError:
            return
        assert after(policy, 1) is not None

    def test_a_number_with_more_digits_than_python_writes_is_refused_as_well(self) -> None:
        """It is named by its type then."""
        with pytest.raises(ConfigurationError, match="delay: a value of type int is not a number of seconds"):
            Fixed(10**5_000)

    def test_a_keyword_that_no_policy_has_is_refused(self) -> None:
        """A typing error is not an unlimited policy."""
        with pytest.raises(TypeError, match="max_attempt"):
            Fixed(1, max_attempt=3)  # type: ignore[call-arg]

    def test_attempts_count_from_one(self) -> None:
        """Zero attempts cannot have failed."""
        with pytest.raises(ValueError, match="attempt is 0; the first one is 1"):
            after(Fixed(1), 0)

    def test_a_time_without_a_zone_is_refused(self) -> None:
        """It would be off by hours somewhere."""
        naive = NOW.replace(tzinfo=None)
        with pytest.raises(
            ValueError, match=r"now is 2026-11-19T12:00:00, without a time zone; give datetime.now\(UTC\)"
        ):
            Fixed(1).next(1, naive, NOW, lambda: 0)
        with pytest.raises(ValueError, match="first_attempt_at is 2026-11-19T12:00:00, without a time zone"):
            Fixed(1).next(1, NOW, naive, lambda: 0)


class TestPoliciesAreValues:
    """They are compared, copied and printed, and never change."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_copies_are_equal(self, policy: RetryPolicy) -> None:
        """However they were made."""
        for other in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), replace(policy)):  # noqa: S301 -- our own
            assert other == policy
            assert hash(other) == hash(policy)
        assert replace(policy, max_attempts=3) != policy
        assert replace(policy, max_attempts=3).max_attempts == 3

    def test_one_written_differently_is_the_same(self) -> None:
        """Thirty seconds are thirty seconds."""
        assert Fixed("30s") == Fixed(30) == Fixed(timedelta(seconds=30))
        assert Cron(" 0  6 * * *") == Cron("0 6 * * *")
        assert Series(["1m"]) == Series((60,))

    @pytest.mark.parametrize("policy", POLICIES)
    def test_nothing_in_them_changes(self, policy: RetryPolicy) -> None:
        """A policy is shared by every handler that has it."""
        with pytest.raises(FrozenInstanceError):
            policy.max_attempts = 3  # type: ignore[misc]

    def test_they_are_printed_with_what_they_are_made_of(self) -> None:
        """For a log line at the start."""
        text = repr(Cron("0 6 * * *", "Europe/Berlin", max_attempts=-1))
        assert text.startswith("Cron(")
        assert all(part in text for part in ("expression='0 6 * * *'", "timezone='Europe/Berlin'", "max_attempts=-1"))
