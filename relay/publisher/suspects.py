"""Rows that failed among others are remembered, and sent in ever smaller parts until the one at fault is known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from relay.brokers.broker import RequestLimits
from relay.publisher.delivery import Delivered
from relay.publisher.message import Sendable, lanes, requests

# Rows that failed are sent in parts of an eighth of what they failed in.
SHRINK = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """One topic's share of a batch, cut into requests."""

    rows: Sequence[Sendable]
    requests: Sequence[Sequence[Sendable]]  # of rows without a key
    lanes: Sequence[Sequence[Sequence[Sendable]]]  # of each key, its requests one after the other

    @property
    def unsent(self) -> frozenset[int]:
        """Rows without a key that are in no request: there were more suspects than are sent at once."""
        sent = {row.id for request in self.requests for row, _ in request}
        return frozenset(row.id for row, _ in self.rows if row.ordering_key is None and row.id not in sent)


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
        return Cut(
            rows,
            list(requests(keyless, known.ids, known.rows_a_part, limits)),
            list(lanes(keyed, known.ids, known.rows_a_part, limits)),
        )

    def learn(self, delivered: Delivered, unsent: frozenset[int]) -> None:
        """Remember what a topic's share of a batch came to."""
        before = self._topics.pop(delivered.topic, None)
        if ids := delivered.suspects | unsent:
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
