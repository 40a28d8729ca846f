"""Months, each as the date of its first day."""

import re
from datetime import date

_WRITTEN = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


def read(text: str) -> date:
    """Read 2026-01. Raises ValueError for what is no month."""
    found = _WRITTEN.fullmatch(text.strip())
    try:
        return date(int(found[1]), int(found[2]), 1) if found else _refused(text)
    except ValueError:
        return _refused(text)


def written(month: date) -> str:
    """As people write it: 2026-01."""
    return f"{month.year:04}-{month.month:02}"


def in_names(month: date) -> str:
    """As it stands in the names of tables and files: 2026_01."""
    return f"{month.year:04}_{month.month:02}"


def _refused(text: str) -> date:
    raise ValueError(f"{text!r:.40} is no month; write it like 2026-01") from None
