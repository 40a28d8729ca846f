"""The times that a cron expression names, in a time zone.

On the days when clocks are changed it does what Debian's cron does. An expression for certain times of the day, like
"30 2 * * *", names each of them once: one that is skipped is made up for as the clocks go forward, and one that comes
twice counts the first time. One for every so many minutes or hours, like "*/5 * * * *", goes on at its pace.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from relay.kernel.code_duration import shown

_FIELDS = 5
_MOST_CHARACTERS = 200
_EXAMPLE = "write five fields, minute hour day month weekday, like */5 * * * *"
_RANGES = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L",
    "month": "1 to 12, or jan to dec",
    "day-of-week": "0 to 7, or sun to sat",
}
# Any time will do to find out whether there is a next one: what is possible at all happens within 50 years.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_SECOND, _HOUR, _DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def zone(name: str) -> tzinfo:
    """The time zone of that name. Raises ValueError with one sentence."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        raise ValueError(
            f"timezone is {shown(name)}, which this system does not know; write it like Europe/Berlin or UTC, "
            "and where the system has no time zones at all, pip install tzdata"
        ) from None


def checked(expression: object) -> str:
    """The expression, one blank between its fields. Raises ValueError with one sentence."""
    if not isinstance(expression, str) or len(expression) > _MOST_CHARACTERS:
        raise ValueError(f"expression is {shown(expression)}, which is no cron expression; {_EXAMPLE}")
    fields = expression.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"expression is {shown(expression)}, which has {len(fields)} fields; {_EXAMPLE}")
    try:
        found = next(CronSim(expression, _SOME_TIME), None)
    except CronSimError as fault:
        raise ValueError(f"expression is {shown(expression)}, which {_wrong(fault, fields)}; {_EXAMPLE}") from None
    if found is None:
        raise ValueError(f"expression is {shown(expression)}, which names no time within 50 years; {_EXAMPLE}")
    return " ".join(fields)


def _wrong(fault: CronSimError, fields: list[str]) -> str:
    """What is wrong with which field, and what may stand there."""
    field = str(fault).removeprefix("Bad ")
    minute, hour, day, _, weekday = fields
    if field == "day-of-month" and _is_read(f"{minute} {hour} {day} * {weekday}"):
        return "names a day that its month never has"
    return f"has a wrong {field}" + (f" ({_RANGES[field]})" if field in _RANGES else "")


def _is_read(expression: str) -> bool:
    try:
        CronSim(expression, _SOME_TIME)
    except CronSimError:
        return False
    return True


def next_after(expression: str, timezone: tzinfo, now: datetime) -> datetime | None:
    """The first time after `now` that the expression names, in UTC; None where there is none."""
    found = _found(expression, timezone, now, now)
    if found is None or _is_for_certain_times(expression):
        return found
    # The library goes on by sixty minutes, and leaves times out where these do not lead from hour to hour: where clocks
    # are changed by less, also as it begins within what comes twice; and on a day that has no midnight to begin at.
    for change in _changes(timezone, now - _HOUR, found):
        into_hour = change.astimezone(timezone).minute
        sooner = _found(expression, timezone, change + timedelta(minutes=-into_hour % 60) - _SECOND, now)
        if sooner is not None and sooner < found:
            return sooner
    return found


def _found(expression: str, timezone: tzinfo, start: datetime, now: datetime) -> datetime | None:
    for time in CronSim(expression, start.astimezone(timezone)):
        # In the hour that comes twice the library may begin with a time of the first round, which is over.
        if (found := time.astimezone(UTC)) > now:
            return found
    return None


def _is_for_certain_times(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return not minute.startswith("*") and not hour.startswith("*")


def _changes(timezone: tzinfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """When between these clocks are changed."""
    while begin < end:
        following = min(begin + _DAY, end)
        if _offset(timezone, following) != _offset(timezone, begin):
            yield _change(timezone, begin, following)
        begin = following


def _change(timezone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The second at which clocks are changed between these."""
    was = _offset(timezone, before)
    while after - before > _SECOND:
        middle = before + (after - before) / 2
        before, after = (middle, after) if _offset(timezone, middle) == was else (before, middle)
    return after.replace(microsecond=0)


def _offset(timezone: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(timezone).utcoffset() or timedelta(0)
