"""The road's middle: a batch is claimed, published and settled inside one transaction.

What is settled is what the broker took, and who pays for what it did not (`failures`). All other rows are left as they
were: the commit releases them, and a later pass finds them again. A crash before the commit does the same with the
whole batch, so a message may go out twice and is never lost.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from relay.brokers.broker import Broker
from relay.failed_head import FailedHead
from relay.kernel.backoff import Delay
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.outbox.batch import Batch
from relay.outbox.floors import Floors
from relay.outbox.outbox import Outbox
from relay.outbox.rows import Candidates, Claim, Claimed
from relay.publisher import crash_points
from relay.publisher.circuits import Circuits
from relay.publisher.crash_points import Point
from relay.publisher.delivered import Delivered
from relay.publisher.delivery import Delivery, Reserve
from relay.publisher.events import TopicClosed, TopicOpened, TopicProbed
from relay.publisher.failures import Attempts
from relay.publisher.message import Sendable
from relay.publisher.outcome import Built, build, judge, settle
from relay.publisher.suspects import Suspects
from relay.routes import Routes

# A claim of each kind stops at this size, whatever the number of rows: it bounds what a pass holds in memory, and what
# a slow line has to carry.
CLAIM_BYTES = 4_000_000
# So many requests that hang fit into the publish budget, with some that do not: one leaves time to find out why.
REQUESTS_IN_BUDGET = 3.2
# The same of a probe.
REQUESTS_IN_PROBE = 2.1
# So many open topics are asked side by side between two batches.
PROBES_AT_ONCE = 20
# Where nothing of a batch is taken, so many of the topic's newest rows, of at most so many bytes, may be asked for.
CONTROLS = 50
CONTROL_BYTES = 100_000
# So many times a thousand keys are looked at for one, where no row without a key is there.
LOOKS_FOR_CONTROLS = 5
# Looking for rows beside those of open topics, and in vain, may cost this share of the time at most.
FRUITLESS_SHARE = 1 / 20


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """Where rows go, what the publisher may take at once, how often it tries a row, and how long it waits.

    When a row of an ordering key has failed for good, `failed_head` says whether its key goes on. An idle outbox is
    polled, a topic that fails is left alone; so is everything after an error of the publisher's own.
    """

    routes: Routes
    batch_size: int
    publish_seconds: float
    attempts: Attempts
    poll: Delay
    outage: Delay
    failed_head: FailedHead = field(default_factory=FailedHead)

    @property
    def pace(self) -> Pace:
        """A full batch is followed at once."""
        return Pace(busy=0, idle=self.poll, error=self.outage)

    @property
    def request_seconds(self) -> float:
        """How long one request may take."""
        return self.publish_seconds / REQUESTS_IN_BUDGET


class Publisher:
    """The runner that publishes."""

    name = "publish"

    def __init__(self, outbox: Outbox, broker: Broker, policy: PublishPolicy, observe: Observe) -> None:
        self.pace = policy.pace
        self._circuits = Circuits(policy.outage)
        self._suspects = Suspects(policy.batch_size)
        self._claim_again_at = 0.0
        self._in_vain = 0.0  # seconds of claims in a row that found nothing beside open topics
        self._settled_in_round = False  # since the claims began to come by the keys
        self._outbox = outbox
        self._broker = broker
        self._policy = policy
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Publish batch after batch until nothing can be published now, or the budget is spent."""
        total = Report()
        while True:
            if asked := self._circuits.due(budget.monotonic())[:PROBES_AT_ONCE]:
                total = _sum(total, await self._probe(asked, budget.monotonic))
                if budget.spent(total.processed):
                    return total
            total = _sum(total, await self._batch(budget.monotonic))
            left = total.next is Next.AGAIN or self._circuits.due(budget.monotonic())
            if not left or budget.spent(total.processed):
                return total

    @property
    def floors(self) -> Floors:
        """Where its claims start."""
        return self._outbox.floors

    def closed(self) -> tuple[Sequence[str], Sequence[str]]:
        """The topics that wait for their next probe, which no event announces, and the event types that go there."""
        return self._circuits.open_topics, self._circuits.open_types

    async def close(self) -> None:
        """Close both connections."""
        await self._outbox.close()
        await self._broker.close()

    async def _batch(self, monotonic: Callable[[], float]) -> Report:
        began = monotonic()
        if began < self._claim_again_at and not self._outbox.floors.rewound:
            return Report(next=Next.IDLE)
        crash_points.reached(Point.CLAIM_BEFORE)
        async with self._outbox.batch() as batch:
            claim = await self._claim(batch, monotonic)
            crash_points.reached(Point.CLAIM_AFTER)
            built = build(claim.rows, self._policy.routes, self._policy.failed_head)
            news = self._learn(built)
            delivered = await self._deliver(batch, built.by_topic, monotonic)
            outcome = judge(claim.rows, built, delivered, self._policy.attempts, self._policy.failed_head)
            await settle(batch, outcome)
        crash_points.reached(Point.COMMIT_AFTER)
        self._tell(outcome.events(monotonic() - began))
        # Every claim that follows at once finds other rows: those of this one were settled, or are known to be of an
        # open topic.
        settled = outcome.settles or self._settled_in_round
        self._settled_in_round = settled and claim.unseen
        progress = news or settled or any(topic.outage for topic in delivered)
        following = Next.AGAIN if progress or claim.unseen else Next.BACK_OFF
        left = claim.full or claim.unseen or built.left_behind or news
        return _sum(outcome.report, Report(next=following if left else Next.IDLE))

    async def _claim(self, batch: Batch, monotonic: Callable[[], float]) -> Claim:
        began = monotonic()
        topics = self._circuits.open_topics
        claim = await batch.claim(self._policy.batch_size, CLAIM_BYTES, topics, self._circuits.open_types)
        self._in_vain = self._in_vain + monotonic() - began if topics and not claim.rows else 0.0
        if self._in_vain and not claim.unseen:
            self._claim_again_at = monotonic() + min(self._in_vain / FRUITLESS_SHARE, self._policy.outage.most)
            self._in_vain = 0.0
        return claim

    def _learn(self, built: Built) -> bool:
        """Take out rows of open topics, which were claimed because their event type was not known yet."""
        news = False
        for topic in [topic for topic in built.by_topic if self._circuits.is_open(topic)]:
            news |= self._circuits.learn(topic, _types(built.by_topic.pop(topic)))
        return news

    async def _probe(self, topics: Sequence[str], monotonic: Callable[[], float]) -> Report:
        """Ask open topics, side by side, whether they take one of their rows."""
        began = monotonic()
        found: dict[str, Candidates] = {}
        try:
            async with self._outbox.batch() as batch:
                for topic in topics:
                    found[topic] = await batch.candidates(
                        topic,
                        self._circuits.types(topic),
                        self._circuits.place(topic),
                        keys_first=self._circuits.looks(topic) % 2 == 1,
                    )
                look = monotonic() - began
                rows = [row for candidates in found.values() for row in candidates.rows]
                built = build(rows, self._policy.routes, self._policy.failed_head)
                delivered = await self._deliver_probes(built.by_topic, monotonic)
                outcome = judge(rows, built, delivered, self._policy.attempts, self._policy.failed_head)
                await settle(batch, outcome)
        except BaseException:  # a cancellation, too: others have their turn before it is tried again
            for topic in topics:
                self._circuits.not_asked(topic, monotonic())
            raise
        self._tell(outcome.events(monotonic() - began))
        results = {topic.topic: topic for topic in delivered}
        for topic in topics:
            result = results.get(topic, Delivered(topic))
            self._conclude(topic, found[topic], result, monotonic(), look / FRUITLESS_SHARE)
        return outcome.report

    async def _deliver_probes(
        self, by_topic: dict[str, list[Sendable]], monotonic: Callable[[], float]
    ) -> Sequence[Delivered]:
        deadline = monotonic() + REQUESTS_IN_PROBE * self._policy.request_seconds
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._delivery(topic, monotonic, deadline, _no_more).probe(self._in_turn(topic, rows))
                )
                for topic, rows in by_topic.items()
                if self._circuits.is_open(topic)
            ]
        return [task.result() for task in tasks]

    def _in_turn(self, topic: str, rows: Sequence[Sendable]) -> Sequence[Sendable]:
        """Suspects first, so that others are their control; each has its turn to be the first, in case it hangs."""
        ordered = sorted(rows, key=lambda pair: not pair[0].attempt_count)
        first = self._circuits.probes(topic) % len(ordered)
        return ordered[first:] + ordered[:first]

    def _conclude(self, topic: str, found: Candidates, delivered: Delivered, now: float, at_least: float) -> None:
        errors = [guilty.error for guilty in delivered.guilty]
        error = delivered.outage or next(iter(errors), None)
        if delivered.accepted or not found.seen:
            if not found.seen:
                self._suspects.forget(topic)
            probes, seconds = self._circuits.close(topic, now)
            self._claim_again_at = now
            self._observe(TopicClosed(topic, probes, seconds, taken=bool(delivered.accepted)))
        elif error is None:
            self._circuits.not_asked(topic, now, at_least, found.last)
        else:
            probes, wait = self._circuits.in_vain(topic, found.last, now, at_least)
            self._observe(TopicProbed(topic, error, probes, wait))

    async def _deliver(
        self, batch: Batch, by_topic: dict[str, list[Sendable]], monotonic: Callable[[], float]
    ) -> Sequence[Delivered]:
        deadline = monotonic() + self._policy.publish_seconds
        newest = max((row.id for rows in by_topic.values() for row in _without_key(rows)), default=0)
        cuts = {topic: self._suspects.cut(topic, rows, self._broker.limits) for topic, rows in by_topic.items()}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._delivery(topic, monotonic, deadline, self._reserve(batch, topic, cut.rows, newest)).send(
                        cut.requests, cut.lanes
                    )
                )
                for topic, cut in cuts.items()
            ]
        delivered = [task.result() for task in tasks]
        for topic in delivered:
            cut = cuts[topic.topic]
            self._suspects.learn(topic, cut)
            self._open_or_well(topic, _types(cut.rows), monotonic())
        return delivered

    def _reserve(self, batch: Batch, topic: str, rows: Sequence[Sendable], beyond: int) -> Reserve:
        """Claims rows of the topic that a batch left behind, when one is asked for as a control.

        They are its newest without a key, or else the first ones of further keys.
        """

        async def reserve() -> list[Sendable]:
            types = tuple(_types(rows))
            claimed = await batch.controls(topic, types, beyond, CONTROLS, CONTROL_BYTES)
            after = ""
            for _ in range(0 if claimed else LOOKS_FOR_CONTROLS):
                heads = await batch.heads(topic, types, after, CONTROLS, CONTROL_BYTES)
                claimed, after = heads.rows, heads.after
                if claimed or not after:
                    break
            return build(claimed, self._policy.routes, self._policy.failed_head).by_topic.get(topic, [])

        return reserve

    def _delivery(self, topic: str, monotonic: Callable[[], float], deadline: float, reserve: Reserve) -> Delivery:
        return Delivery(topic, self._broker, monotonic, self._policy.request_seconds, deadline, self._observe, reserve)

    def _tell(self, events: Iterable[object]) -> None:
        for event in events:
            self._observe(event)

    def _open_or_well(self, delivered: Delivered, types: AbstractSet[str], now: float) -> None:
        topic = delivered.topic
        if delivered.outage is None:
            self._circuits.well(topic)
        else:
            self._observe(TopicOpened(topic, delivered.outage, self._circuits.open(topic, types, now)))


async def _no_more() -> list[Sendable]:
    """A probe asks for no other rows than its own."""
    return []


def _without_key(rows: Iterable[Sendable]) -> Iterator[Claimed]:
    return (row for row, _ in rows if row.ordering_key is None)


def _types(rows: Iterable[Sendable]) -> set[str]:
    """The types of events that go where they go by their type, and not because their row says so."""
    return {row.event_type for row, _ in rows if row.topic is None}


def _sum(first: Report, then: Report) -> Report:
    return Report(
        processed=first.processed + then.processed,
        updated=first.updated + then.updated,
        skipped=first.skipped + then.skipped,
        errors=first.errors + then.errors,
        next=then.next,
    )
