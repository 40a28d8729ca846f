"""Durations as they are written in code: a timedelta, a number of seconds, or a text with its unit."""

from datetime import timedelta

from relay.kernel.duration import parse, written

Duration = timedelta | float | str

ZERO = timedelta(0)
# No failed event waits for longer, except for a time that a cron expression names.
LONGEST = timedelta(days=7)
_SHOWN = 40


def read(value: Duration) -> timedelta:
    """Read a duration of zero or more. Raises ValueError with one sentence.

    A number counts seconds, as everywhere in Python. A text without a unit is refused: in the settings, `500` would
    count milliseconds.
    """
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _not_negative(_of_seconds(value), value)
    if isinstance(value, timedelta):
        return _not_negative(value, value)
    raise ValueError(f"{shown(value)} is not a duration; give a timedelta, seconds, or a text like 500ms, 30s or 2h")


def shown(value: object) -> str:
    """A value for a sentence: durations as they are written, others by the beginning of their repr."""
    if isinstance(value, timedelta) and value >= ZERO and not value.microseconds % 1_000:
        return written(value)
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- a number may have too many digits, and anything else its own faults
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _of_text(value: str) -> timedelta:
    digits = value.strip()
    if digits.isdecimal():
        raise ValueError(
            f"{shown(value)} has no unit; write {digits[:9]}s or {digits[:9]}ms, or give a number of seconds"
        )
    if len(value) > _SHOWN:
        raise ValueError(f"{shown(value)} is not a duration; write it like 500ms, 30s, 15m, 720h or 30d")
    return parse(value)


def _of_seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):  # infinite, or no number
        raise ValueError(f"{shown(value)} is not a number of seconds that can be waited for") from None


def _not_negative(duration: timedelta, value: object) -> timedelta:
    if duration < ZERO:
        raise ValueError(f"{shown(value)} is negative; give zero or more")
    return duration
