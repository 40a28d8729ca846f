"""Rows that failed among others are remembered, and sent in ever smaller parts until the one at fault is known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import ceil

from relay.brokers.broker import RequestLimits
from relay.publisher.delivered import Delivered
from relay.publisher.message import Sendable, is_suspect, lanes, requests

# Rows that failed are sent in parts of an eighth of what they failed in.
SHRINK = 8
# So many keys of which a row is suspect have a turn in one batch: what hangs must leave room for others.
SUSPECT_LANES = 16
# So many suspects of a topic are remembered.
MOST_SUSPECTS = 10_000


# The requests of one key, which follow each other.
Lane = Sequence[Sequence[Sendable]]


@dataclass(frozen=True, slots=True)
class Cut:
    """One topic's share of a batch, cut into requests."""

    rows: Sequence[Sendable]
    requests: Sequence[Sequence[Sendable]]  # of rows without a key
    lanes: Sequence[Lane]  # of each key

    @property
    def ids(self) -> frozenset[int]:
        """All rows of the share."""
        return frozenset(row.id for row, _ in self.rows)

    @property
    def leaves_some(self) -> bool:
        """Whether there are rows in no request."""
        return sum(map(len, (*self.requests, *chain.from_iterable(self.lanes)))) < len(self.rows)

    @property
    def unsent(self) -> frozenset[int]:
        """Rows that are in no request: there were more suspects than are sent at once."""
        sent = {row.id for request in (*self.requests, *chain.from_iterable(self.lanes)) for row, _ in request}
        return self.ids - sent


@dataclass(frozen=True, slots=True)
class _Memory:
    """Suspects of one topic, and in parts of how many they are sent next."""

    ids: frozenset[int]
    rows_a_part: int


class Suspects:
    """What a relay remembers of requests that failed, from pass to pass."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._topics: dict[str, _Memory] = {}

    def cut(self, topic: str, rows: Sequence[Sendable], limits: RequestLimits) -> Cut:
        """Cut a topic's rows into requests, suspects into small ones."""
        known = self._topics.get(topic, _Memory(frozenset(), ceil(self._batch_size / SHRINK)))
        keyed, keyless = _divided(rows)
        well: list[Lane] = []
        suspected: list[Lane] = []
        for lane in lanes(keyed, known.ids, known.rows_a_part, limits):
            doubtful = any(is_suspect(pair, known.ids) for request in lane for pair in request)
            (suspected if doubtful else well).append(lane)
        # Suspects first: whatever is sent after them is their control.
        return Cut(
            rows,
            list(requests(keyless, known.ids, known.rows_a_part, limits)),
            [*suspected[:SUSPECT_LANES], *well],
        )

    def learn(self, delivered: Delivered, cut: Cut) -> None:
        """Remember what a topic's share of a batch came to. Suspects that were not among it stay suspect."""
        before = self._topics.pop(delivered.topic, None)
        if not (before or delivered.suspects or cut.leaves_some):
            return
        ids = delivered.suspects | cut.unsent
        if before:
            ids |= frozenset(islice(before.ids - cut.ids, max(0, MOST_SUSPECTS - len(ids))))
        if ids:
            # Parts that fail again become smaller and smaller, however little a pass has time for.
            size = before.rows_a_part if before else self._batch_size
            self._topics[delivered.topic] = _Memory(ids, max(1, ceil(size / SHRINK)) if delivered.suspects else size)

    def forget(self, topic: str) -> None:
        """The topic has no rows left."""
        self._topics.pop(topic, None)


def _divided(rows: Iterable[Sendable]) -> tuple[list[Sendable], list[Sendable]]:
    keyed: list[Sendable] = []
    keyless: list[Sendable] = []
    for pair in rows:
        (keyless if pair[0].ordering_key is None else keyed).append(pair)
    return keyed, keyless
