"""The shadow goes on: rows are compared as they come, also those that an old publisher marks at once."""

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import takewhile

from relay.adopt.comparison import Comparison, Progress
from relay.adopt.judging import PAGE, judged, newest, next_page
from relay.adopt.queries import Key
from relay.adopt.session import Session

_POLL = 1.0
# For so long a row may be committed behind others with a greater id, and still be seen.
_LATE = timedelta(minutes=1)
# Of the rows that are there at the start so many are known: one that is committed later may have its id among theirs.
_KNOWN = 1_000


class Watch:
    """Every row above a floor is seen once; the floor rises behind what has been seen for a while."""

    def __init__(
        self, session: Session, comparison: Comparison, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._comparison = comparison
        self._monotonic = monotonic
        last = newest(session, _KNOWN + 1, sent=False)
        self._floor: Key | None = last.pop(0) if len(last) > _KNOWN else None
        self._seen = dict.fromkeys(last, monotonic())

    def look(self) -> int:
        """Compare the rows that are new; answer how many they were."""
        after, now, new = self._floor, self._monotonic(), 0
        there: dict[Key, float] = {}
        while page := next_page(self._session, after, PAGE, pending=False):
            after = page[-1]
            fresh = [key for key in page if key not in self._seen]
            for row in judged(self._session, fresh):
                self._comparison.add(row)
            there.update((key, self._seen.get(key, now)) for key in page)
            new += len(fresh)
        self._seen = there
        self._rise(now - _LATE.total_seconds())
        return new

    def _rise(self, long_ago: float) -> None:
        """Up to the first row, by its id, that was seen lately: rows are seen in the order of their commits."""
        for key in list(takewhile(lambda key: self._seen[key] < long_ago, self._seen)):
            self._floor = key
            del self._seen[key]


def watch(
    session: Session,
    comparison: Comparison,
    duration: timedelta,
    progress: Progress,
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Go on comparing for so long."""
    watching = Watch(session, comparison)
    end = time.monotonic() + duration.total_seconds()
    while (left := end - time.monotonic()) > 0:
        watching.look()
        progress("rows compared, watching", comparison.pending + comparison.sent)
        rest(min(_POLL, left))
    watching.look()
