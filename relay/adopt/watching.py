"""The shadow goes on: rows are compared as they come, also those that an old publisher marks at once."""

import time
from collections.abc import Callable
from datetime import timedelta

from relay.adopt.comparison import Comparison, Progress, newest
from relay.adopt.judging import PAGE, judged, next_page
from relay.adopt.queries import Key
from relay.adopt.session import Session

_POLL = 1.0
# For so long a row may be committed behind others with a greater id, and still be seen.
_LATE = timedelta(minutes=1)


class Watch:
    """Every row above a floor is seen once; the floor rises behind what has been seen for a while."""

    def __init__(self, session: Session, comparison: Comparison) -> None:
        self._session = session
        self._comparison = comparison
        last = newest(session, 1, sent=False)
        self._floor: Key | None = last[0] if last else None
        self._seen: dict[Key, float] = {}

    def look(self) -> int:
        """Compare the rows that are new; answer how many they were."""
        after, new = self._floor, 0
        while page := next_page(self._session, after, PAGE, pending=False):
            after = page[-1]
            fresh = [key for key in page if key not in self._seen]
            for row in judged(self._session, fresh):
                self._comparison.add(row)
            self._seen.update(dict.fromkeys(fresh, time.monotonic()))
            new += len(fresh)
        self._rise()
        return new

    def _rise(self) -> None:
        """Rows were seen in any order; the floor is the greatest id below which all were seen long ago."""
        long_ago = time.monotonic() - _LATE.total_seconds()
        old = [key for key, seen in self._seen.items() if seen < long_ago]
        if old:
            # The latest that was seen of these had the greatest id of its look.
            self._floor = old[-1]
            for key in old:
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
