"""Durations as people write them: `500`, `500ms`, `30s`, `15m`, `720h`, `30d`."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator

_UNITS = {"": "milliseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PATTERN = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d|)")


def parse(value: object) -> timedelta:
    """Read a duration; a bare number counts milliseconds."""
    if isinstance(value, timedelta):
        return value
    match = _PATTERN.fullmatch(str(value).strip().lower())
    if not match:
        raise ValueError(f"{value!r} is not a duration; write it like 500ms, 30s, 15m, 720h or 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


Duration = Annotated[timedelta, BeforeValidator(parse)]
