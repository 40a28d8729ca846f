"""Finds the rows at fault in a request that failed: by halves, from left to right.

One such row among n costs at most 2 · log2(n) further requests. As long as nothing at all is taken, only the way down
to the first row and the neighbours on the way back up are tried, which is as many: that is what an outage costs.
"""

from math import ceil, log2


class Isolation:
    """The parts of a failed request that are still to be sent, as ranges of its rows.

    `control`: the topic took something else that was sent after the request.
    """

    def __init__(self, rows: int, *, control: bool) -> None:
        self._todo: list[range] = _halves(range(rows))[::-1]
        # They failed while nothing was taken: worth another look only when something is.
        self._waiting: list[range] = []
        self._taken = control
        self._descending = True
        self._in_a_row = 0
        # After something was taken, failures one after the other mean that an outage began meanwhile.
        self._enough = 2 * ceil(log2(max(rows, 2))) + 2

    def next(self) -> range | None:
        """The next part to be sent by itself; None at the end. Answer it before you ask again."""
        return self._todo.pop() if self._todo and not self.hopeless else None

    @property
    def hopeless(self) -> bool:
        """Whether it looks as if an outage began meanwhile."""
        return self._in_a_row > self._enough

    def taken(self) -> None:
        """The part was taken."""
        self._taken = True
        self._in_a_row = 0
        for part in self._waiting[::-1]:
            self._todo.extend(_halves(part)[::-1])
        self._waiting = []

    def failed(self, part: range, *, like_an_outage: bool) -> None:
        """The part failed; whether in a way in which outages fail."""
        self._in_a_row += self._taken and like_an_outage
        if len(part) == 1:
            self._descending = False
        elif self._taken or self._descending:
            self._todo.extend(_halves(part)[::-1])
        else:
            self._waiting.append(part)

    @property
    def unresolved(self) -> list[range]:
        """What was neither taken nor isolated."""
        return [*self._waiting, *self._todo]


def _halves(part: range) -> list[range]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]]
