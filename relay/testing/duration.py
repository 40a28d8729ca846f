"""Durations as a test writes them: a timedelta, a number of seconds, or a text with its unit."""

from datetime import timedelta

from relay.kernel.duration import parse

Duration = timedelta | float | str


def seconds_of(value: Duration) -> float:
    """Read a duration of zero or more. Raises ValueError with one sentence, TypeError for what is none at all."""
    match value:
        case timedelta():
            seconds = value.total_seconds()
        case str():
            if value.strip().isdecimal():
                raise ValueError(f"{value!r} has no unit; write it like 500ms, 30s or 1h, or give a number of seconds")
            seconds = parse(value).total_seconds()
        case int() | float() if not isinstance(value, bool):
            seconds = float(value)
        case _:
            raise TypeError(f"a duration is a timedelta, seconds, or a text like 1h, not a {type(value).__name__}")
    if not 0 <= seconds <= timedelta.max.total_seconds():
        raise ValueError(f"{value!r} is not a duration of zero or more")
    return seconds
