"""Durations as people write them: `500`, `500ms`, `30s`, `15m`, `720h`, `30d`."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_MILLISECONDS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LARGEST_FIRST = sorted(((unit, size) for unit, size in _MILLISECONDS.items() if unit), key=lambda pair: -pair[1])
_PATTERN = re.compile(r"([0-9]{1,13})\s*(ms|s|m|h|d|)")
_LONGEST = timedelta(days=36_500)


def parse(value: object) -> timedelta:
    """Read a duration; a bare number counts milliseconds."""
    if isinstance(value, timedelta):
        return value
    match = _PATTERN.fullmatch(str(value).strip().lower())
    if not match:
        raise ValueError(f"{value!r} is not a duration; write it like 500ms, 30s, 15m, 720h or 30d")
    milliseconds = int(match[1]) * _MILLISECONDS[match[2]]
    if milliseconds > _LONGEST / timedelta(milliseconds=1):
        raise ValueError(f"{value!r} is longer than {written(_LONGEST)}, the longest duration there is")
    return timedelta(milliseconds=milliseconds)


def written(duration: timedelta) -> str:
    """Write a duration in its largest whole unit, to the millisecond: what `parse` reads."""
    milliseconds = duration // timedelta(milliseconds=1)
    if not milliseconds:
        return "0s"
    return next(f"{milliseconds // size}{unit}" for unit, size in _LARGEST_FIRST if milliseconds % size == 0)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than zero")
    return value


Duration = Annotated[timedelta, BeforeValidator(parse)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
