"""Leases: which deliveries are held, under which ack id, until when."""

import re
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from relay.dev.pubsub.delivery import Delivery
from relay.dev.pubsub.status import InvalidArgumentError

_ACK_ID = re.compile(r"([0-9a-f]+-)?[0-9]+")


class Leases:
    """Deliveries by ack id, and by deadline.

    Those that were granted together share a deadline, so the heap holds one bucket for each grant
    rather than one entry for each delivery, and an acknowledged delivery leaves nothing behind.
    """

    def __init__(self, ack_id_prefix: str) -> None:
        self._prefix = ack_id_prefix
        self._number = count(1)
        self._held: dict[str, tuple[Delivery, dict[str, Delivery]]] = {}
        self._buckets: list[tuple[float, int, dict[str, Delivery]]] = []

    def __len__(self) -> int:
        return len(self._held)

    def grant(self, deliveries: Iterable[Delivery], deadline: float) -> None:
        """Hold the deliveries under new ack ids until the deadline."""
        bucket: dict[str, Delivery] = {}
        for delivery in deliveries:
            ack_id = f"{self._prefix}{next(self._number)}"
            delivery.ack_id = ack_id
            bucket[ack_id] = delivery
            self._held[ack_id] = (delivery, bucket)
        self._push(deadline, bucket)

    def check(self, ack_ids: Iterable[str]) -> None:
        """Refuse ack ids that cannot have been granted; those no longer held pass."""
        for ack_id in ack_ids:
            if ack_id not in self._held and not _ACK_ID.fullmatch(ack_id):
                raise InvalidArgumentError(f"{ack_id!r} is not an ack id of this service")

    def extend(self, ack_ids: Iterable[str], deadline: float) -> None:
        """Move the deadline, earlier or later, of those ack ids that are held."""
        fresh: dict[str, Delivery] = {}
        for ack_id in ack_ids:
            if ack_id in self._held:
                delivery, bucket = self._held[ack_id]
                del bucket[ack_id]
                fresh[ack_id] = delivery
                self._held[ack_id] = (delivery, fresh)
        self._push(deadline, fresh)

    def held(self, ack_id: str) -> Delivery | None:
        """Return what is held under an ack id; None if nothing ever was, or is no longer."""
        held = self._held.get(ack_id)
        return None if held is None else held[0]

    def end(self, ack_id: str) -> Delivery | None:
        """Stop holding an ack id; None if it never was, or is no longer, held."""
        held = self._held.pop(ack_id, None)
        if held is None:
            return None
        delivery, bucket = held
        del bucket[ack_id]
        return delivery

    def expired(self, now: float) -> list[Delivery]:
        """Name the deliveries whose deadline has passed; they stay held until they are ended."""
        late: list[Delivery] = []
        while self._buckets and self._buckets[0][0] <= now:
            late.extend(heappop(self._buckets)[2].values())
        return late

    def newest_first(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Return held deliveries, those that were granted last before the others."""
        return sorted(deliveries, key=lambda each: int(each.ack_id[len(self._prefix) :]), reverse=True)

    def next_deadline(self) -> float | None:
        """Return when the next lease may end, if any is held."""
        while self._buckets and not self._buckets[0][2]:
            heappop(self._buckets)
        return self._buckets[0][0] if self._buckets else None

    def _push(self, deadline: float, bucket: dict[str, Delivery]) -> None:
        if bucket:
            heappush(self._buckets, (deadline, next(self._number), bucket))
