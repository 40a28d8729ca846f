"""Whoever looks on while an archive is at work: may end it, and is told how far it is."""

from collections.abc import Callable
from dataclasses import dataclass


class StoppedError(Exception):
    """Raised by a check: the work ends here, and goes on with the next call."""


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """Both are called by the thread that works, often."""

    check: Callable[[], None] = _nothing
    """Raises where the work is to go no further."""
    tell: Callable[[str, int], None] = _nothing
    """What is counted, and how much of it there is."""
