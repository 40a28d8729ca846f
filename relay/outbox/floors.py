"""Where claims begin, so that they do not walk over all that was published already.

As long as an old snapshot is open anywhere in the cluster, the indexes keep an entry for every row that was ever
pending, and each claim that began at the first of them would visit them all. Two floors spare it that:

fresh       the fast one. Nothing at or below it need be looked at just now: all that could be seen there was claimed,
            or was passed over: locked by others, of a topic that takes nothing, or released again.
fresh_safe  no fresh row is pending at or below it, and none can appear there. It lags behind by a second or two, and
            stands still as long as a transaction that writes is held open.

What the fast floor passed is found by sweeps, which are claims that start at the safe one. They walk over what lies
between the two, so they come after twenty times as long as the last one took. What no floor can know (rows that were
inserted by hand, ids that began anew) is found by starting from nothing, every ten minutes and with every connection.

ordered_safe is the same as fresh_safe for rows with an ordering key: no row at or below it is unpublished, failed rows
that block their key included. A key that is blocked holds it where it is.
"""

import time
from collections.abc import Callable, Collection
from math import inf
from typing import Any, NamedTuple

# Sweeps, and looks for the safe floors, take one part in so many of the time.
SHARE = 20
# In a drain that finds full batches, sweeps and looks come no more often than that.
LEAST_SECONDS = 1.0
# Where nothing else is found, rows that were released are looked for at once as long as it takes no longer than this.
SHORT_SECONDS = 0.25
# From nothing again.
RESTART_SECONDS = 600.0


class Look(NamedTuple):
    """What `floors.sql` answers with."""

    xid: str | None  # of this transaction, where one was needed
    fresh_safe: int | None  # None while a transaction from before the last note is still open
    ordered_safe: int | None


class Note(NamedTuple):
    """An id that had been seen when a transaction got its xid; whoever drew a lower id has a lower xid."""

    seen: int
    xid: str


class Floors:
    """What one relay knows of the outbox. The caller claims, looks and tells; nothing here waits or asks."""

    fresh: int
    fresh_safe: int
    ordered_safe: int

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.restart()

    def restart(self) -> None:
        """Forget everything: the next claim starts at the first row, and so does the next look."""
        self.fresh = self.fresh_safe = self.ordered_safe = 0
        self._restarted_at = self._monotonic()
        self._seen = 0
        self._noted: Note | None = None
        self._asked = 0
        self._asked_at = -inf
        self._look_at = -inf
        self._rewound = True
        self._owes = False
        self._busy = False
        self._closed: frozenset[str] = frozenset()
        self._claim_began = -inf
        self._sweeping = False
        self._sweep_to = 0
        self._sweep_longest = 0.0
        self._sweep_seconds = 0.0
        self._swept_at = -inf
        self._file: int | None = None

    def rewind(self) -> None:
        """Let the next claim start at the safe floor: rows may have appeared, or become free, below the fast one."""
        self.fresh = self.fresh_safe
        self._rewound = True

    def released(self) -> None:
        """Rows that were claimed are free again; they are swept up as soon as that is cheap enough."""
        self._owes = True

    @property
    def rewound(self) -> bool:
        """Whether somebody asks for a claim from the safe floor, and none has begun since."""
        return self._rewound

    @property
    def restarts_in(self) -> float:
        """In how many seconds a claim starts from nothing."""
        return self._restarted_at + RESTART_SECONDS - self._monotonic()

    @property
    def owes(self) -> bool:
        """Whether rows that were released lie below the fast floor."""
        return self._owes

    def start(self, passed_over: Collection[str] = ()) -> int:
        """Begin a claim that leaves out the rows of these; returns above which id it looks."""
        self._claim_began = now = self._monotonic()
        if now - self._restarted_at >= RESTART_SECONDS:
            self.restart()
            self._claim_began = now
        closed = frozenset(passed_over)
        if self._closed - closed or now >= self._sweep_due():
            self.rewind()
        self._closed = closed
        self._rewound = False
        if self.fresh == self.fresh_safe:
            self._owes = False
            self._sweeping, self._sweep_to, self._sweep_longest = True, self._seen, 0.0
        return self.fresh

    @property
    def busy(self) -> bool:
        """Whether the last claim was full, and the next one, probably, needs not know how far the table goes."""
        return self._busy

    def claimed(self, end: int | None, file: int, *, full: bool, seconds_before: float = 0.0) -> None:
        """End a claim, which began so many seconds later than was said.

        It saw all that could be seen up to `end`: the last id that it returned, or when it was not full the table's
        greatest; None where it was not full, and nobody has asked for that. A table in another `file` than before was
        truncated, or written anew.
        """
        if end is None:
            self._busy = False
            return
        if (not full and end < self._seen) or self._file not in {None, file}:
            # Rows were removed, and ids may begin anew.
            self.restart()
        elif not self._rewound:
            self.fresh = end
        self._file = file
        self._seen = max(self._seen, end)
        self._busy = full
        now = self._monotonic()
        self._sweep_longest = max(self._sweep_longest, now - self._claim_began - seconds_before)
        if self._sweeping and end >= self._sweep_to:
            self._sweeping, self._sweep_seconds, self._swept_at = False, self._sweep_longest, now

    @property
    def asks(self) -> bool:
        """Whether it is time to look."""
        return self._monotonic() >= self._look_at and self._seen > min(self.fresh_safe, self.ordered_safe)

    def question(self) -> dict[str, Any] | None:
        """What to ask `floors.sql`, in a transaction that has claimed nothing yet; None when it is not time to."""
        if not self.asks:
            return None
        self._asked, self._asked_at = self._seen, self._monotonic()
        seen, xid = self._noted or (0, None)
        return {"seen": seen, "xid": xid, "fresh_safe": self.fresh_safe, "ordered_safe": self.ordered_safe}

    def answer(self, look: Look) -> None:
        """Take what it answered, unless everything was forgotten meanwhile."""
        if self._asked_at == -inf:
            return
        now = self._monotonic()
        self._look_at = now + max(LEAST_SECONDS, SHARE * (now - self._asked_at))
        if look.fresh_safe is not None:
            self.fresh_safe = look.fresh_safe
            self.fresh = max(self.fresh, self.fresh_safe)
        if look.ordered_safe is not None:
            self.ordered_safe = look.ordered_safe
        if look.xid is not None:
            self._noted = Note(self._asked, look.xid)

    def _sweep_due(self) -> float:
        wait = SHARE * self._sweep_seconds
        if self._sweeping:
            return inf
        if self._busy:
            return self._swept_at + (wait if self._owes else max(wait, LEAST_SECONDS))
        if self._owes and self._sweep_seconds <= SHORT_SECONDS:
            return -inf
        return self._swept_at + wait
