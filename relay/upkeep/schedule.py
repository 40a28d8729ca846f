"""When a job is due: the slots of its schedule, the same on every machine, by the database's clock.

A slot is a moment. What counts is the latest that has come: of several that were missed, it is the only one that is
made up for.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol

from relay.kernel import cron
from relay.kernel.code_duration import Duration, read, shown

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
SHORTEST: Final = timedelta(seconds=1)
# As of durations that are written as texts: the slot after it has a date.
_LONGEST = timedelta(days=36_500)
# How far back the latest time of a cron expression is looked for, each step from twice as far.
_FIRST_LOOK = timedelta(hours=1)
_LONGEST_LOOK = timedelta(days=366 * 50)


class Schedule(Protocol):
    """Names the slots of a job."""

    at_once: bool
    """Whether a job that nobody knew yet runs at once, or waits for its first slot."""

    def latest(self, now: datetime) -> datetime | None:
        """The last slot up to now; None where there was none yet."""
        ...

    def next_after(self, now: datetime) -> datetime | None:
        """The first slot after now; None where there is none any more."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """A slot every so often, counted from one moment that all machines share."""

    interval: timedelta
    at_once = True

    @classmethod
    def of(cls, interval: Duration) -> "Every":
        """Read an interval. Raises ValueError with one sentence."""
        try:
            found = read(interval)
        except ValueError as fault:
            if not isinstance(interval, str):
                raise
            raise ValueError(f"{shown(interval)} is no interval; write it like 30s, 2m or 24h") from fault
        if found < SHORTEST:
            raise ValueError(f"an interval is {shown(interval)}; give a second or more")
        if found > _LONGEST:
            raise ValueError(f"an interval is {shown(interval)}; give {shown(_LONGEST)} or less")
        return cls(found)

    def latest(self, now: datetime) -> datetime | None:
        """The last slot up to now."""
        return now - (now - _EPOCH) % self.interval

    def next_after(self, now: datetime) -> datetime | None:
        """The first slot after now."""
        return now - (now - _EPOCH) % self.interval + self.interval

    def __str__(self) -> str:
        return f"every {shown(self.interval)}"


@dataclass(frozen=True, slots=True)
class Cron:
    """A slot at each time that a cron expression names; `relay.kernel.cron` tells of summer time."""

    expression: str
    zone: tzinfo
    at_once = False

    @classmethod
    def of(cls, expression: object, timezone: str) -> "Cron":
        """Read an expression. Raises ValueError with one sentence."""
        return cls(cron.checked(expression), cron.zone(timezone))

    def latest(self, now: datetime) -> datetime | None:
        """The last slot up to now."""
        back = _FIRST_LOOK
        while back <= _LONGEST_LOOK:
            found, slot = None, cron.next_after(self.expression, self.zone, now - back)
            while slot is not None and slot <= now:
                found, slot = slot, cron.next_after(self.expression, self.zone, slot)
            if found is not None:
                return found
            back *= 2
        return None

    def next_after(self, now: datetime) -> datetime | None:
        """The first slot after now."""
        return cron.next_after(self.expression, self.zone, now)

    def __str__(self) -> str:
        return f"cron {self.expression}" + ("" if self.zone is UTC else f" in {self.zone}")
