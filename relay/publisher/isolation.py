"""Finds the rows at fault in a request that failed: by halves, from left to right.

One such row among n costs fewer than 2 · log2(n) further requests. As long as nothing at all is taken, only the way
down to the first row and the neighbours on the way back up are tried: that is what an outage costs.
"""

from dataclasses import dataclass
from math import ceil, log2


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the request's rows, to be sent by themselves."""

    rows: range
    of: range  # the part that failed and was halved


class Isolation:
    """The parts of a failed request that are still to be sent.

    `control`: the topic took something else that was sent after the request.
    """

    def __init__(self, rows: int, *, control: bool) -> None:
        self._whole = range(rows)
        self._todo = _halves(self._whole)
        # They failed while nothing was taken: worth another look only when something is.
        self._waiting: list[range] = []
        self._taken = control
        self._descending = True
        self._in_a_row = 0
        # After something was taken, failures one after the other mean that an outage began meanwhile.
        self._enough = 2 * ceil(log2(max(rows, 2))) + 2

    def next(self) -> Part | None:
        """The next part to be sent; None at the end. Answer it before you ask again."""
        return self._todo.pop() if self._todo and not self.hopeless else None

    @property
    def hopeless(self) -> bool:
        """Whether it looks as if an outage began meanwhile."""
        return self._in_a_row > self._enough

    def taken(self, part: Part) -> None:
        """The part was taken."""
        if self._todo and self._todo[-1].of == part.of != self._whole and len(self._todo[-1].rows) > 1:
            # What failed before this part was halved is in the other half. Only the whole request may have met a blip.
            self._halve(self._todo.pop().rows)
        self.reassured()

    def reassured(self) -> None:
        """The topic took something else: what failed so far is worth another look."""
        self._taken = True
        self._in_a_row = 0
        for rows in self._waiting[::-1]:
            self._halve(rows)
        self._waiting = []

    def failed(self, part: Part, *, hurry: bool = False) -> None:
        """The part failed. In a hurry its halves come last: others may be taken before the time is over."""
        self._in_a_row += self._taken
        if len(part.rows) == 1:
            self._descending = False
        elif hurry:
            self._todo[:0] = _halves(part.rows)
        elif self._taken or self._descending:
            self._halve(part.rows)
        else:
            self._waiting.append(part.rows)

    @property
    def unresolved(self) -> list[range]:
        """What was neither taken nor isolated."""
        return [*self._waiting, *(part.rows for part in self._todo)]

    def _halve(self, rows: range) -> None:
        self._todo += _halves(rows)


def _halves(rows: range) -> list[Part]:
    """Both halves, the left one on top."""
    middle = len(rows) // 2
    return [Part(rows[middle:], rows), Part(rows[:middle], rows)]
