"""When a failed event is tried again, as values that a consumer is built with.

    Fixed("30s")                          30 s, 30 s, 30 s, …
    Linear("10s", most="2m")              10 s, 20 s, 30 s, … 2 min
    Exponential()                         5 s, 10 s, 20 s, … 2 min, each with up to 0.5 s on top
    Series(["0s", "1m", "1h"])            at once, 1 min, 1 h, 1 h, …
    Cron("0 6 * * *", "Europe/Berlin")    at six in the morning

A policy gives up after `max_attempts` (10; -1 is never), the first one included, or when the next attempt would begin
later than `max_duration` after the first one began. An event that waited for a consumer which was away has lost nothing
by it: what counts is the first attempt, not when the event was created. Where that was made in another process, or
before a restart, this one counts from when it first saw the event.

Durations are timedeltas, seconds, or texts like "500ms", "30s", "2m", "720h". `jitter` is added to each delay, evenly
spread between nothing and the whole of it, and never lifts it above the policy's `most`. A delay is at most 7 days,
except that Cron keeps to its times.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, Unpack

from consumers.errors import ConfigurationError
from relay.kernel import cron
from relay.kernel.code_duration import LONGEST, ZERO, Duration, read, shown

MAX_ATTEMPTS = 10
UNLIMITED = -1
MOST_FACTOR = 1_000
MINUTES_TO_AN_HOUR = ("1m", "2m", "4m", "8m", "16m", "32m", "60m")


class Limits(TypedDict, total=False):
    """When a policy gives up; every policy takes these by keyword."""

    max_attempts: int
    """The first attempt included; -1 is unlimited. Default: 10."""
    max_duration: Duration | None
    """From the first attempt's beginning to the last one's. Default: None, unlimited."""


@dataclass(frozen=True, init=False)
class RetryPolicy(ABC):
    """What every policy has: its jitter, and when it gives up."""

    jitter: timedelta
    max_attempts: int
    max_duration: timedelta | None

    def __init__(
        self, *, jitter: Duration, max_attempts: int = MAX_ATTEMPTS, max_duration: Duration | None = None
    ) -> None:
        self._keep(
            jitter=self._duration("jitter", jitter),
            max_attempts=self._attempts(max_attempts),
            max_duration=None if max_duration is None else self._positive("max_duration", max_duration, timedelta.max),
        )

    def next(
        self,
        attempt: int,
        now: datetime,
        first_attempt_at: datetime,
        random: Callable[[], float],
        *,
        asked: timedelta | None = None,
    ) -> timedelta | None:
        """How long to wait after attempt number `attempt`, which counts from 1, has failed; None: give up.

        `first_attempt_at` is when the first attempt began. `random` gives numbers from 0 to 1. `asked` is the delay
        that the handler asked for: it takes the place of the policy's own, and the limits hold for it as well.
        """
        now, first_attempt_at = _utc("now", now), _utc("first_attempt_at", first_attempt_at)
        if attempt < 1:
            raise ValueError(f"attempt is {attempt}; the first one is 1")
        if self.max_attempts != UNLIMITED and attempt >= self.max_attempts:
            return None
        delay = self._delay(attempt, now, random) if asked is None else min(max(asked, ZERO), LONGEST)
        if delay is None:
            return None
        # Two differences rather than a later date: it might be past the year 9999.
        if self.max_duration is not None and now - first_attempt_at > self.max_duration - delay:
            return None
        return delay

    def _delay(self, attempt: int, now: datetime, random: Callable[[], float]) -> timedelta | None:
        before_jitter = self._before_jitter(attempt, now)
        return None if before_jitter is None else min(self._most, before_jitter + self.jitter * random())

    @abstractmethod
    def _before_jitter(self, attempt: int, now: datetime) -> timedelta | None: ...

    @property
    def _most(self) -> timedelta:
        return LONGEST

    def _keep(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _wrong(self, sentence: str) -> ConfigurationError:
        return ConfigurationError(f"{type(self).__name__}: {sentence}")

    def _duration(self, name: str, value: Duration, longest: timedelta = LONGEST) -> timedelta:
        try:
            duration = read(value)
        except ValueError as fault:
            raise self._wrong(f"{name}: {fault}") from None
        if duration > longest:
            raise self._wrong(f"{name} is {shown(value)}, longer than {shown(longest)}; give that or less")
        return duration

    def _positive(self, name: str, value: Duration, longest: timedelta = LONGEST) -> timedelta:
        duration = self._duration(name, value, longest)
        if not duration:
            raise self._wrong(f"{name} is {shown(value)}; give a duration longer than zero")
        return duration

    def _attempts(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and (value == UNLIMITED or value >= 1):
            return value
        raise self._wrong(
            f"max_attempts is {shown(value)}; give 1 to try once, a larger number to retry, or -1 for no limit"
        )


@dataclass(frozen=True, init=False)
class Fixed(RetryPolicy):
    """The same delay after every attempt."""

    delay: timedelta

    def __init__(self, delay: Duration, *, jitter: Duration = ZERO, **limits: Unpack[Limits]) -> None:
        super().__init__(jitter=jitter, **limits)
        self._keep(delay=self._duration("delay", delay))

    def _before_jitter(self, attempt: int, now: datetime) -> timedelta:  # noqa: ARG002 -- the same for all
        return self.delay


@dataclass(frozen=True, init=False)
class Linear(RetryPolicy):
    """One `step` longer after every attempt, up to `most`, jitter included."""

    step: timedelta
    most: timedelta

    def __init__(
        self, step: Duration, *, most: Duration = LONGEST, jitter: Duration = ZERO, **limits: Unpack[Limits]
    ) -> None:
        super().__init__(jitter=jitter, **limits)
        self._keep(step=self._positive("step", step), most=self._positive("most", most))
        if self.most < self.step:
            raise self._wrong(f"most is {shown(self.most)}, less than its step, {shown(self.step)}; give that or more")

    def _before_jitter(self, attempt: int, now: datetime) -> timedelta:  # noqa: ARG002 -- grows by the attempt alone
        return self.step * min(attempt, self.most // self.step + 1)

    @property
    def _most(self) -> timedelta:
        return self.most


@dataclass(frozen=True, init=False)
class Exponential(RetryPolicy):
    """`factor` times as long after every attempt, from `base` up to `most`, jitter included."""

    base: timedelta
    most: timedelta
    factor: float

    def __init__(
        self,
        base: Duration = "5s",
        *,
        most: Duration = "120s",
        jitter: Duration = "500ms",
        factor: float = 2,
        **limits: Unpack[Limits],
    ) -> None:
        super().__init__(jitter=jitter, **limits)
        self._keep(base=self._positive("base", base), most=self._positive("most", most), factor=self._factor(factor))
        if self.most < self.base:
            raise self._wrong(f"most is {shown(self.most)}, less than its base, {shown(self.base)}; give that or more")

    def _factor(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MOST_FACTOR:
            return float(value)
        raise self._wrong(f"factor is {shown(value)}; give a number from 1 to {MOST_FACTOR}, like 2")

    def _before_jitter(self, attempt: int, now: datetime) -> timedelta:  # noqa: ARG002 -- grows by the attempt alone
        if self.factor == 1:
            return self.base
        # Beyond this many steps a power only overflows.
        steps_to_most = math.log(self.most / self.base) / math.log(self.factor)
        if attempt - 1 >= steps_to_most:
            return self.most
        return min(self.most, self.base * self.factor ** (attempt - 1))

    @property
    def _most(self) -> timedelta:
        return self.most


@dataclass(frozen=True, init=False)
class Series(RetryPolicy):
    """The given delays one after the other, then the last one again and again."""

    delays: tuple[timedelta, ...]

    def __init__(
        self,
        delays: Sequence[Duration] = MINUTES_TO_AN_HOUR,
        *,
        jitter: Duration = ZERO,
        **limits: Unpack[Limits],
    ) -> None:
        super().__init__(jitter=jitter, **limits)
        self._keep(delays=self._several(delays))

    def _several(self, given: object) -> tuple[timedelta, ...]:
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise self._wrong(f'delays is {shown(given)}; give a list of durations, like ["1m", "2m", "1h"]')
        return tuple(self._duration(f"delays[{place}]", delay) for place, delay in enumerate(given))

    def _before_jitter(self, attempt: int, now: datetime) -> timedelta:  # noqa: ARG002 -- the attempt alone counts
        return self.delays[min(attempt, len(self.delays)) - 1]


@dataclass(frozen=True, init=False)
class Cron(RetryPolicy):
    """The next time that a cron expression names, however far off it is. `relay.kernel.cron` tells of summer time."""

    expression: str
    timezone: str

    def __init__(
        self, expression: str, timezone: str = "UTC", *, jitter: Duration = ZERO, **limits: Unpack[Limits]
    ) -> None:
        super().__init__(jitter=jitter, **limits)
        try:
            cron.zone(timezone)
            self._keep(expression=cron.checked(expression), timezone=timezone)
        except ValueError as fault:
            raise self._wrong(str(fault)) from None

    def _before_jitter(self, attempt: int, now: datetime) -> timedelta | None:  # noqa: ARG002 -- the clock alone counts
        time = cron.next_after(self.expression, cron.zone(self.timezone), now)
        return None if time is None else time - now

    @property
    def _most(self) -> timedelta:
        return timedelta.max


def _utc(name: str, time: datetime) -> datetime:
    """In UTC, because two times of one other zone differ by what its clocks show."""
    if time.utcoffset() is None:
        raise ValueError(f"{name} is {time.isoformat()}, without a time zone; give datetime.now(UTC)")
    return time.astimezone(UTC)
