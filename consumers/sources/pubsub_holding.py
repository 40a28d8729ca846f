"""What is held of a subscription: how much that is, and until when the service waits for us."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from consumers.delivery import Delivery
from consumers.sources.pubsub_settling import Settling
from relay.errors import BrokerError

# How often in the time between two extensions it is looked which ones are due; and one that failed is tried again.
_LOOKS: Final = 5
_OVERHEAD: Final = 64

# So many deliveries are lost, and why.
Lost = Callable[[int, str], None]


@dataclass(slots=True, eq=False)
class Lease:
    """The service's side of a delivery: it changes when the message is delivered again while we hold it."""

    ack_id: str
    until: float
    """When the service waits for us no longer, by the process's monotonic clock."""
    size: int = 0
    extending: bool = False
    settling: bool = False
    lost: bool = False
    key: str = field(init=False)
    """The ack id that it came with."""

    def __post_init__(self) -> None:
        self.key = self.ack_id


class Holding:
    """The deliveries that are held, each extended until it is let go, however long that takes."""

    def __init__(
        self,
        settling: Settling,
        lost: Lost,
        *,
        deadline: int,
        extend_every: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settling = settling
        self._lost = lost
        self._deadline = deadline
        self._extend_every = extend_every
        self._monotonic = monotonic
        self._held: dict[str, Delivery] = {}  # by ack id, the first one
        self._latest: dict[str, Delivery] = {}  # by message id
        self._extensions: set[asyncio.Task[None]] = set()
        self._error: BrokerError | None = None  # of the last extension
        self.bytes = 0
        self.looks = 0
        """How often it was looked what is to be extended."""

    def __len__(self) -> int:
        return len(self._held)

    def receive(self, received: Iterable[Any], waited: float = 0.0) -> tuple[list[Delivery], list[Delivery]]:
        """Hold what has come, perhaps `waited` seconds ago; answer with what is new, and with what was held already.

        A message that comes again while we hold it has a new ack id, and the old one is worth nothing: the service
        gave up on us too early, or we were late. It is the same work: nobody needs to do it a second time. Under an
        ordering key it is handed over again: others of its key may come again before it, and go first.
        """
        now = self._monotonic()
        until = now + self._deadline - waited
        held, latest = self._held, self._latest
        fresh, again = [], []
        for each in received:
            message = each.message
            message_id, attributes = message.message_id, dict(message.attributes)
            lease = Lease(each.ack_id, until)
            delivery = Delivery(
                body=message.data,
                attributes=attributes,
                message_id=message_id,
                ordering_key=message.ordering_key,
                published_at=message.publish_time.seconds + message.publish_time.nanos / 1e9,
                attempt=each.delivery_attempt,
                handle=lease,
            )
            before = latest.get(message_id)
            if before is not None and _same(before, delivery):
                if not delivery.ordering_key:
                    _renew(before, delivery)
                    again.append(before)
                    continue
                before.handle.lost = True
            size = len(delivery.body) + _OVERHEAD
            size += sum(map(len, attributes)) + sum(map(len, attributes.values()))
            lease.size = size
            self.bytes += size
            held[lease.key] = latest[message_id] = delivery
            fresh.append(delivery)
        return fresh, again

    def holds(self, delivery: Delivery) -> bool:
        """Whether it has not been let go."""
        return delivery.handle.key in self._held

    def let_go(self, delivery: Delivery) -> bool:
        """Hold it no longer; false where it was not held."""
        lease: Lease = delivery.handle
        if self._held.pop(lease.key, None) is None:
            return False
        if self._latest.get(delivery.message_id) is delivery:
            del self._latest[delivery.message_id]
        self.bytes -= lease.size
        return True

    async def keep(self) -> None:
        """Extend what is held, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._extend_every / _LOOKS)
                self._extend_due()
                self.looks += 1
        finally:
            if extensions := list(self._extensions):
                for extension in extensions:
                    extension.cancel()
                await asyncio.wait(extensions)

    async def confirm_receipt(self, fresh: Sequence[Delivery], again: Sequence[Delivery]) -> list[Delivery]:
        """Ask an exactly-once subscription which of these are ours; let the others go.

        What has lain in buffers for too long is somebody else's by now, or comes again; so does all that follows it
        under its ordering key. Where the service cannot be asked, it is asked for as long as they may be ours: what
        follows them must not be handed over first.
        """
        said = await self._settling.extend(
            [each.handle.ack_id for each in (*fresh, *again)], self._deadline, self._deadline
        )
        gone = said.refused.keys() | set(said.failed)
        if not gone:
            return list(fresh)
        for delivery in again:
            delivery.handle.lost |= delivery.handle.ack_id in gone
        ours, broken, unknown = [], set(), 0
        for delivery in fresh:
            ack_id = delivery.handle.ack_id
            if ack_id not in gone and delivery.ordering_key not in broken:
                ours.append(delivery)
                continue
            if delivery.ordering_key:
                broken.add(delivery.ordering_key)
            self.let_go(delivery)
            if ack_id not in said.refused:
                self._settling.give_back(ack_id, 0)
                unknown += 1
        if said.error is not None and unknown:
            self._lost(unknown, f"receipt not confirmed: {said.error}")
        return ours

    def _extend_due(self) -> None:
        now = self._monotonic()
        due: list[Delivery] = []
        late: list[Delivery] = []
        worn = self._deadline - self._extend_every
        for delivery in self._held.values():
            lease: Lease = delivery.handle
            left = lease.until - now
            if left > worn or lease.lost or lease.extending:
                continue
            if left > 0:
                due.append(delivery)
            elif not lease.settling:
                late.append(delivery)
        self._lose(late, f"not extended in time{f': {self._error}' if self._error else ''}")
        if due:
            for delivery in due:
                delivery.handle.extending = True
            task = asyncio.ensure_future(self._extend(due, now))
            self._extensions.add(task)
            task.add_done_callback(self._extensions.discard)

    async def _extend(self, due: Sequence[Delivery], now: float) -> None:
        asked = [(delivery, delivery.handle.ack_id) for delivery in due]
        refused: dict[str, list[Delivery]] = {}
        try:
            said = await self._settling.extend([ack_id for _, ack_id in asked], self._deadline)
        finally:
            for delivery in due:
                delivery.handle.extending = False
        failed, self._error = set(said.failed), said.error
        for delivery, ack_id in asked:
            lease: Lease = delivery.handle
            if lease.ack_id != ack_id or not self.holds(delivery):
                continue
            if ack_id in said.refused:
                refused.setdefault(said.refused[ack_id], []).append(delivery)
            elif ack_id not in failed:
                lease.until = max(lease.until, now + self._deadline)
        for reason, deliveries in refused.items():
            # What is being acknowledged may be gone because it is.
            self._lose([each for each in deliveries if not each.handle.settling], reason)

    def _lose(self, deliveries: Sequence[Delivery], reason: str) -> None:
        for delivery in deliveries:
            delivery.handle.lost = True
        if deliveries:
            self._lost(len(deliveries), reason)


def _same(before: Delivery, delivery: Delivery) -> bool:
    return (
        before.published_at == delivery.published_at
        and before.body == delivery.body
        and before.attributes == delivery.attributes
    )


def _renew(before: Delivery, delivery: Delivery) -> None:
    """The message is held under its new ack id; the old one is forgotten."""
    lease: Lease = before.handle
    before.attempt = delivery.attempt
    lease.ack_id, lease.until, lease.lost = delivery.handle.ack_id, delivery.handle.until, False
