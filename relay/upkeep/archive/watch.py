"""Whoever looks on while an archive is at work: may end it, and is told how far it is."""

from collections.abc import Callable
from dataclasses import dataclass


class StoppedError(Exception):
    """Raised by a check: the work ends here, and goes on with the next call."""


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """All are called by the thread that works."""

    check: Callable[[], None] = _nothing
    """Raises where the work is to go no further. Called often."""
    tell: Callable[[str, int], None] = _nothing
    """What is under way, and how much of it is done by now. Called often."""
    count: Callable[[str, int], None] = _nothing
    """What is done and recorded, and how much more of it."""
