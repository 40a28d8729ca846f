"""Ordered rows are claimed by key, each key from its first row that waits.

A claim visits keys in a walk over the index, and goes on where it ended. Of each key that can go on, it reads the ids
of the rows that wait, first to last, whoever holds them; it then locks rows by their ids alone, as many as can be had,
and takes them in their order up to the first that was not to be had, is put off, or has failed and blocks its key.

Nobody needs to agree on who serves a key: two relays that visit one at once find the locks of the other, and the one
that does not get the first row gets none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
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
    more: bool = False  # there may be further rows behind these


# How a row fared of which, as of all before it in its key, the lock was had: it may be sent; it is out by now, or given
# up; or there was no room for it among the bytes.
Standing = Literal["taken", "out", "cut"]


def within(keys: Sequence[Visited], rows: int) -> list[Visited]:
    """The keys with no more ids than so many in all."""
    ids = iter([row_id for key in keys for row_id in key.ids][:rows])
    return [key._replace(ids=list(islice(ids, len(key.ids)))) for key in keys]


@dataclass(slots=True)
class Walk:
    """Where the next claim goes on, and whether this round over all keys has left rows behind that could be sent."""

    after: str = ""
    left_behind: bool = False

    def restart(self) -> None:
        """Begin at the first key again, and let another round follow: this one may miss keys."""
        self.after, self.left_behind = "", True

    def visited(self, keys: Sequence[Visited], rows: int, standings: Mapping[int, Standing]) -> None:
        """A claim of up to so many rows has come by these keys; a row behind what holds its key up has no standing."""
        ready = [key for key in keys if key.ids]
        for key, wanted in zip(ready, within(ready, rows), strict=True):
            if wanted.ids and wanted.ids[0] in standings:
                # Where only a beginning was had, whoever holds the rest gives it back: the first row was not for it.
                self.left_behind |= wanted.ids[-1] not in standings or key.more or len(key.ids) > len(wanted.ids)
        if "cut" in standings.values():
            self.left_behind = True
            # The next claim begins with the keys for which there was no room.
            self.after = [key.ordering_key for key in ready if "taken" in map(standings.get, key.ids)][-1]
        else:
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
