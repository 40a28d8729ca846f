"""Ordered rows are claimed by key, each key from its first row that waits.

A claim visits keys in a walk over the index, and goes on where it ended. Of each key that can go on, it (a) reads the
ids of the rows that wait, first to last, whoever holds them; (b) locks rows by their ids alone, as many as can be had;
(c) takes them in their order up to the first that was not to be had, is put off, or has failed and blocks its key.

Nobody needs to agree on who serves a key: two relays that visit one at once find the locks of the other, and the one
that does not get the first row gets none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

# So many rows of a key at least are taken with one visit: of fewer, each would cost a request of its own.
ROWS_A_KEY = 100
# So many keys at most are visited by one claim, so that it ends soon where all of them are held up.
KEYS_A_CLAIM = 1_000


class Visited(NamedTuple):
    """A key of the walk, and the rows that wait in it from its first on; none where the key cannot go on."""

    ordering_key: str
    rows: int  # counted so far, in all keys up to this one
    ids: list[int]


# What becomes of a locked row: it is sent, it is passed over because it is out, or its key ends before it.
Standing = Literal["next", "out", "stop"]


def prefix(ids: Iterable[int], standings: Mapping[int, Standing]) -> Iterator[int]:
    """The ids of one key that may be sent, in order. Those without a standing are held by somebody else."""
    for row_id in ids:
        match standings.get(row_id):
            case "next":
                yield row_id
            case "out":
                continue
            case _:
                return


@dataclass(slots=True)
class Walk:
    """Where the next claim goes on, and whether this round over all keys has left rows behind that could be sent."""

    after: str = ""
    left_behind: bool = False

    def visited(self, keys: Sequence[Visited], rows: int) -> None:
        """A claim of up to so many rows has come by these keys."""
        ready = [len(key.ids) for key in keys if key.ids]
        most = max(share(rows), rows // max(1, len(ready)))
        self.left_behind |= sum(ready) > rows or any(ids >= most for ids in ready)
        self.after = ends_after(keys, rows)

    @property
    def unseen(self) -> bool:
        """Whether there may be keys that this round has not come by."""
        return self.after != ""

    def round_ends(self) -> bool:
        """Begin a new round; whether the old one has left rows behind."""
        left, self.left_behind = self.left_behind, False
        return left


def ends_after(keys: Sequence[Visited], rows: int) -> str:
    """The key after which a walk that was to find so many rows goes on; empty where it has come to the end."""
    at_the_end = len(keys) < KEYS_A_CLAIM and (not keys or keys[-1].rows < rows)
    return "" if at_the_end else keys[-1].ordering_key


def share(rows: int) -> int:
    """How many rows of one key a claim of so many counts before it goes on to the next."""
    return min(ROWS_A_KEY, rows)
