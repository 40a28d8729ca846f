"""One subscription: what waits, what is held by whom, and what comes back.

    published ──> lane ──take──> leased ──acknowledge──> gone
                   ^                │
                   └── nack, expiry ┴──> dead letter   after the last attempt, where there is a topic for it
                   under a new ack id,
                   after the retry policy's pause

Where delivery is exactly-once, whoever settles is told which ack ids were not those of a delivery that is held; an
acknowledged message never comes again, with or without.

Everything happens in the caller's thread and at the clock's time; a change that may let a waiting
consumer go on is announced to the listeners.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from relay.dev.pubsub.delivery import Batch, Consumer, Delivery
from relay.dev.pubsub.filters import Filter
from relay.dev.pubsub.lanes import Lane, Ordered, Unordered
from relay.dev.pubsub.leases import Leases
from relay.dev.pubsub.settlement import INVALID, UNORDERED, AckFailures

BATCH_MESSAGES = 1_000
BATCH_BYTES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a subscription delivers."""

    ack_deadline: float = 10.0
    ordered: bool = False
    exactly_once: bool = False
    """Whether ack ids that settle nothing are refused, and those of a key that come out of turn."""
    filter: Filter | None = None
    max_attempts: int = 0
    """After so many the message becomes a dead letter; 0 where there is no dead-letter policy."""
    min_backoff: float = 0.0
    max_backoff: float = 0.0

    @property
    def counts_attempts(self) -> bool:
        """Whether consumers see the attempt: the service tells only beside a dead-letter policy."""
        return self.max_attempts > 0

    def is_last(self, attempt: int) -> bool:
        """Whether no further attempt is due when this one fails."""
        return 0 < self.max_attempts <= attempt

    def pause(self, attempt: int) -> float:
        """Return how long a delivery rests after its n-th failure: the minimum, doubling."""
        return min(self.max_backoff, self.min_backoff * 2.0 ** min(attempt - 1, 30))


class Subscription:
    """The deliveries of one subscription."""

    def __init__(
        self,
        policy: Policy,
        clock: Callable[[], float],
        ack_id_prefix: str = "",
        bury: Callable[[bytes, int], bool] = lambda _message, _attempts: False,
    ) -> None:
        """`bury` makes a dead letter of a message after so many attempts, or answers False where it cannot."""
        self.policy = policy
        self.deleted = False
        self._clock = clock
        self._bury = bury
        self._leases = Leases(ack_id_prefix)
        self._unordered = Unordered()
        self._keys: dict[str, Ordered] = {}
        self._lanes: deque[Lane] = deque()
        self._resting: list[tuple[float, int, Lane]] = []
        self._ticket = count()
        self._listeners: dict[Callable[[], None], None] = {}

    def publish(self, messages: Sequence[bytes], ordering_key: str = "") -> None:
        """Queue messages, as serialised, that share an ordering key or have none."""
        lane: Lane = self._unordered
        if ordering_key and self.policy.ordered:
            lane = self._keys.setdefault(ordering_key, Ordered(ordering_key))
        lane.add(messages)
        self._schedule(lane, self._clock())
        self.notify()

    def take(
        self,
        consumer: Consumer,
        limit: int = BATCH_MESSAGES,
        ack_deadline: float | None = None,
    ) -> list[Delivery]:
        """Lease what the consumer may have now: up to `limit` deliveries and BATCH_BYTES."""
        now = self._clock()
        self._expire(now)
        batch = Batch(consumer, limit, BATCH_BYTES)
        for _ in range(len(self._lanes)):
            if batch.full():
                break  # the lanes not visited keep their turn
            lane = self._lanes.popleft()
            while not batch.full() and (delivery := lane.draw(consumer, now)):
                batch.add(delivery)
            lane.queued = False
            self._schedule(lane, now)
        if batch.deliveries:
            self._leases.grant(batch.deliveries, now + (ack_deadline or self.policy.ack_deadline))
        return batch.deliveries

    def acknowledge(self, ack_ids: Iterable[str]) -> AckFailures:
        """Settle deliveries for good; ack ids that are not held change nothing."""
        ack_ids, _ = self._settling(ack_ids)
        failures: AckFailures = {}
        strict, leases = self.policy.exactly_once, self._leases
        for ack_id in ack_ids:
            delivery = leases.held(ack_id)
            if delivery is None:
                failures[ack_id] = INVALID
            elif strict and not delivery.lane.is_next(delivery):
                failures[ack_id] = UNORDERED
            else:
                leases.end(ack_id)
                delivery.take_back()
                delivery.lane.forget(delivery)
                self._drop_if_empty(delivery.lane)
        self.notify()
        return failures if strict else {}

    def nack(self, ack_ids: Iterable[str]) -> AckFailures:
        """Give deliveries back; ack ids that are not held change nothing."""
        ack_ids, now = self._settling(ack_ids)
        failures = self._not_held(ack_ids)
        self._fail_all([each for ack_id in ack_ids if (each := self._leases.held(ack_id))], now)
        self.notify()
        return failures

    def extend(self, ack_ids: Iterable[str], seconds: float) -> AckFailures:
        """Let leases end so many seconds from now; ack ids that are not held change nothing."""
        ack_ids, now = self._settling(ack_ids)
        self._leases.extend(ack_ids, now + seconds)
        self.notify()
        return self._not_held(ack_ids)

    def expire(self) -> None:
        """Let end what is due, as everybody does who takes or settles."""
        self._expire(self._clock())

    def next_event(self) -> float | None:
        """Return the clock's time at which something may become deliverable by itself."""
        times = [self._resting[0][0]] if self._resting else []
        deadline = self._leases.next_deadline()
        if deadline is not None:
            times.append(deadline)
        return min(times, default=None)

    def now(self) -> float:
        """Return the clock's time."""
        return self._clock()

    def outstanding(self) -> int:
        """Return how many deliveries are held by consumers."""
        return len(self._leases)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a waiting consumer should try again."""
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Tell the listeners to try again, each time another one first, so that they share."""
        listeners = list(self._listeners)
        for listener in listeners:
            listener()
        if len(listeners) > 1:
            self._listeners[listeners[0]] = self._listeners.pop(listeners[0])

    def delete(self) -> None:
        """End the subscription for everyone who listens."""
        self.deleted = True
        self.notify()

    def _settling(self, ack_ids: Iterable[str]) -> tuple[Collection[str], float]:
        """Return each ack id once, and the time of their request, when it is fit to be applied."""
        once = dict.fromkeys(ack_ids)
        if not self.policy.exactly_once:
            self._leases.check(once)
        now = self._clock()
        self._expire(now)
        return once, now

    def _not_held(self, ack_ids: Iterable[str]) -> AckFailures:
        """Name the ack ids that nothing is held under, where that is told."""
        if not self.policy.exactly_once:
            return {}
        return {ack_id: INVALID for ack_id in ack_ids if self._leases.held(ack_id) is None}

    def _schedule(self, lane: Lane, now: float) -> None:
        """See to it that the lane is visited while something in it is ready."""
        if not lane.queued and lane.ready(now):
            lane.queued = True
            self._lanes.append(lane)

    def _expire(self, now: float) -> None:
        """Fail the leases that have ended, and wake the lanes that have rested."""
        if late := self._leases.expired(now):
            self._fail_all(late, now)
        while self._resting and self._resting[0][0] <= now:
            self._schedule(heappop(self._resting)[2], now)

    def _fail_all(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Let held deliveries fail, each on its own account, also beside an earlier one of its key."""
        if self.policy.ordered:
            # Else the earlier one would draw the later one along, whose own failure would not count.
            deliveries = self._leases.newest_first(deliveries)
        for delivery in deliveries:
            self._fail(delivery, now)

    def _fail(self, delivery: Delivery, now: float) -> None:
        """Queue a delivery again, with those that its key's order draws along; or bury it."""
        lane = delivery.lane
        withdrawn = lane.withdraw(delivery)
        for each in withdrawn:
            self._leases.end(each.ack_id)
            each.take_back()
        due = now
        if self.policy.is_last(delivery.attempt) and self._bury(delivery.message, delivery.attempt):
            withdrawn = withdrawn[1:]
        else:
            due += self.policy.pause(delivery.attempt)
            delivery.attempt += 1
        lane.put_back(withdrawn, due)
        if due > now:
            heappush(self._resting, (due, next(self._ticket), lane))
        self._schedule(lane, now)
        self._drop_if_empty(lane)

    def _drop_if_empty(self, lane: Lane) -> None:
        if isinstance(lane, Ordered) and lane.empty() and not lane.queued:
            self._keys.pop(lane.key, None)
