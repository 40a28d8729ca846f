"""The times that a cron expression names, in a time zone.

On the days when clocks are changed it does what Debian's cron does. An expression for certain times of the day, like
"30 2 * * *", names each of them once: one that is skipped is made up for as the clocks go forward, and one that comes
twice counts the first time. One for every so many minutes or hours, like "*/5 * * * *", goes on at its pace.
"""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from relay.kernel.code_duration import shown

_FIELDS = 5
_MOST_CHARACTERS = 200
_EXAMPLE = "write five fields, minute hour day month weekday, like */5 * * * *"
# Any time will do to find out whether there is a next one: what is possible at all happens within 50 years.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


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
        words = str(fault).replace("Bad", "has a wrong")
        raise ValueError(f"expression is {shown(expression)}, which {words}; {_EXAMPLE}") from None
    if found is None:
        raise ValueError(f"expression is {shown(expression)}, which names no time within 50 years; {_EXAMPLE}")
    return " ".join(fields)


def next_after(expression: str, timezone: tzinfo, now: datetime) -> datetime | None:
    """The first time after `now` that the expression names, in UTC; None where there is none."""
    for time in CronSim(expression, now.astimezone(timezone)):
        # In the hour that comes twice the library may begin with a time of the first round, which is over.
        if (found := time.astimezone(UTC)) > now:
            return found
    return None
