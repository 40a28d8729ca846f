"""What time it is where slots are taken: a guess from the last answer, that never runs ahead of it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class DatabaseClock:
    """Of a process; every answer corrects it.

    As the answer came the database's clock had reached at least what it says: whoever waits by this one for a slot asks
    for it when it has come, late by the answer's way back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._told: tuple[datetime, float] | None = None

    def heard(self, now: datetime) -> None:
        """Note what an answer says that has just come."""
        self._told = now, self._monotonic()

    def now(self) -> datetime | None:
        """The time; None before the first answer."""
        if self._told is None:
            return None
        told, at = self._told
        return told + timedelta(seconds=self._monotonic() - at)


def moment(epoch: float) -> datetime:
    """A moment as statements answer with it, to the microsecond."""
    return datetime.fromtimestamp(epoch, UTC)
