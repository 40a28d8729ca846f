"""Looks one after another, as one: each visits a part of the ordering keys, and the next goes on behind it."""

from math import inf

from relay.outbox.listening import Look


class Round:
    """What the looks of a relay that sleeps have found.

    A round is whole when every key was visited since the last news. Rows that a pass could not take stand in the way
    of nothing: they are found in vain.
    """

    def __init__(self) -> None:
        self.after = ""
        """The key behind which the next look goes on."""
        self._ends = 1  # so often must the last key be reached until the round is whole
        self._from_first = True  # the keys visited since the last end began with the first
        self._found: set[int] = set()  # since the last end
        self._standing: set[int] = set()  # up to the last end
        self._vain: set[int] = set()
        self._due_at = inf  # of what was visited up to the last end
        self._next_due_at = inf  # of what was visited since

    @property
    def whole(self) -> bool:
        """Whether every key was visited since the last news."""
        return self._ends == 0

    @property
    def any_claimable(self) -> bool:
        """Whether there are rows that a pass could not take."""
        return bool(self._found or self._standing)

    @property
    def due_at(self) -> float:
        """When the next row is due, as far as it is known."""
        return min(self._due_at, self._next_due_at)

    def news(self) -> None:
        """Visit every key again: a row may have come to any."""
        self._ends = 2 if self.after else 1

    def passed(self, *, worked: bool) -> None:
        """A pass has ended: what had been found before it and is found again could not be taken, unless it did work."""
        self._vain = set() if worked else self._vain | self._found | self._standing
        self._found, self._standing = set(), set()
        self._from_first = not self.after
        self.news()

    def looked(self, look: Look, now: float) -> bool:
        """Take a look into account; returns whether it has found what no pass has tried."""
        found = set(look.claimable)
        self._found |= found
        if look.due_in_seconds is not None:
            self._next_due_at = min(self._next_due_at, now + look.due_in_seconds)
        self.after = look.last_key or ""
        if not self.after:
            self._end()
        return not found <= self._vain

    def _end(self) -> None:
        if self._from_first:
            # What is not there any more may come back, and is new then.
            self._vain &= self._found
        self._ends = max(0, self._ends - 1)
        self._standing, self._found = self._found, set()
        self._due_at, self._next_due_at = self._next_due_at, inf
        self._from_first = True
