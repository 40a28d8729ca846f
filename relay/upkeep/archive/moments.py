"""Dates and times as Postgres writes them: proleptic Gregorian, BC, years of any length, and both infinities.

They come as Parquet has them: days, or microseconds, since 1970. Python's own end with the year 9999.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class Unit:
    """What time is counted in, as a whole number."""

    most: int
    """Stands for infinity."""
    least: int
    to_1970: int
    """From Postgres' own beginning, 2000."""


DAYS: Final = Unit(2**31 - 1, -(2**31), 10_957)
MICROSECONDS: Final = Unit(2**63 - 1, -(2**63), 10_957 * 86_400_000_000)

_A_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- a time without a zone
_FIRST_DAY, _LAST_DAY = date.min.toordinal(), date.max.toordinal()
_ORDINAL_OF_1970 = date(1970, 1, 1).toordinal()
# The calendar repeats itself after 400 years.
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400


def since_1970(counted: int, unit: Unit) -> int:
    """From a number as Postgres has it."""
    return counted if counted in (unit.most, unit.least) else counted + unit.to_1970


def date_text(days: int) -> str:
    """A date, from the days since 1970."""
    if days in (DAYS.most, DAYS.least):
        return "infinity" if days > 0 else "-infinity"
    text, era = _day(days)
    return text + era


def timestamp_text(microseconds: int) -> str:
    """A time, from the microseconds since 1970; of one with a zone, in UTC and without saying so."""
    if microseconds in (MICROSECONDS.most, MICROSECONDS.least):
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, _A_DAY)
    if _FIRST_DAY <= days + _ORDINAL_OF_1970 <= _LAST_DAY:
        return (_EPOCH + timedelta(days, 0, rest)).isoformat(" ")
    text, era = _day(days)
    return f"{text} {(_EPOCH + timedelta(0, 0, rest)).time().isoformat()}{era}"


def timestamptz_text(microseconds: int) -> str:
    """The same of a time with a zone."""
    text = timestamp_text(microseconds)
    if text.endswith("infinity"):
        return text
    return f"{text.removesuffix(' BC')}+00{' BC' if text.endswith(' BC') else ''}"


def _day(days: int) -> tuple[str, str]:
    """The date, and what is said behind it of one before the year 1."""
    cycles, ordinal = divmod(days + _ORDINAL_OF_1970 - 1, _CYCLE_DAYS)
    day = date.fromordinal(ordinal + 1)
    year = day.year + cycles * _CYCLE_YEARS
    # There is no year 0: the one before 1 is 1 BC.
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{day.month:02}-{day.day:02}", era
