"""The road's middle: a batch is claimed, published and settled inside one transaction.

What is settled is what the broker took, and who pays for what it did not (`failures`). All other rows are left as they
were: the commit releases them, and a later pass finds them again. A crash before the commit does the same with the
whole batch, so a message may go out twice and is never lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from relay.brokers.broker import Broker
from relay.errors import MessageError
from relay.kernel.backoff import Delay
from relay.kernel.failure import code, sentence
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.outbox.outbox import Accepted, Batch, Candidates, Charged, Claimed, Outbox
from relay.publisher import crash_points
from relay.publisher.circuits import Circuits
from relay.publisher.crash_points import Point
from relay.publisher.delivery import Delivered, Delivery, Guilty
from relay.publisher.events import BatchSettled, RowFailed, RowRetried, TopicClosed, TopicOpened, TopicProbed
from relay.publisher.failures import Attempts, Charge, Suspicion, charge, verdict
from relay.publisher.message import Sendable, message_of, requests

# A claim stops at this size, whatever the number of rows: it bounds what a pass holds in memory, and what a slow line
# has to carry within the publish budget.
CLAIM_BYTES = 4_000_000
CODE_CHARACTERS = 64
# What failed once is sent in so many requests the next time, side by side and apart from all others.
SUSPECT_PARTS = 8
PROBE_ROWS = 3
# So many open topics are asked between two batches: healthy topics do not wait for all that are mistyped.
PROBES_AT_ONCE = 10
# A claim that walks over the rows of open topics, and finds no others, may cost this share of the time at most.
FRUITLESS_SHARE = 1 / 20


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """What the publisher may take at once, how often it tries a row, and how long it waits.

    An idle outbox is polled, a topic that fails is left alone; so is everything after an error of the publisher's own.
    """

    batch_size: int
    publish_seconds: float
    attempts: Attempts
    poll: Delay
    outage: Delay

    @property
    def pace(self) -> Pace:
        """A full batch is followed at once."""
        return Pace(busy=0, idle=self.poll, error=self.outage)


@dataclass(frozen=True, slots=True)
class _Built:
    """A batch's messages by topic, and the rows that can never become one."""

    by_topic: dict[str, list[Sendable]]
    guilty: list[tuple[str, Guilty]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a batch settles."""

    claimed: Sequence[Claimed]
    accepted: Sequence[tuple[Claimed, Accepted]]
    charged: Sequence[tuple[str, Guilty, Charge]]

    @property
    def report(self) -> Report:
        """What it adds to the pass's report."""
        published = len(self.accepted)
        return Report(processed=len(self.claimed), updated=published, errors=len(self.claimed) - published)


class Publisher:
    """The runner that publishes."""

    name = "publish"

    def __init__(self, outbox: Outbox, broker: Broker, policy: PublishPolicy, observe: Observe) -> None:
        self.pace = policy.pace
        self._circuits = Circuits(policy.outage)
        self._suspects: dict[str, frozenset[int]] = {}
        self._claim_again_at = 0.0
        self._outbox = outbox
        self._broker = broker
        self._policy = policy
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Publish batch after batch until nothing can be published now, or the budget is spent."""
        total = Report()
        while True:
            for topic in self._circuits.due(budget.monotonic())[:PROBES_AT_ONCE]:
                total = _sum(total, await self._probe(topic, budget.monotonic))
                if budget.spent(total.processed):
                    return total
            total = _sum(total, await self._batch(budget.monotonic))
            if total.next is not Next.AGAIN or budget.spent(total.processed):
                return total

    async def close(self) -> None:
        """Close both connections."""
        await self._outbox.close()
        await self._broker.close()

    async def _batch(self, monotonic: Callable[[], float]) -> Report:
        began = monotonic()
        if began < self._claim_again_at:
            return Report(next=Next.IDLE)
        crash_points.reached(Point.CLAIM_BEFORE)
        async with self._outbox.batch() as batch:
            open_topics = self._circuits.open_topics
            claim = await batch.claim(self._policy.batch_size, CLAIM_BYTES, open_topics)
            if open_topics and not claim.rows:
                self._look_away(began, monotonic())
            crash_points.reached(Point.CLAIM_AFTER)
            built = self._build(claim.rows)
            delivered = await self._deliver(built.by_topic, monotonic)
            outcome = self._judge(claim.rows, built, delivered)
            await _settle(batch, outcome)
        crash_points.reached(Point.COMMIT_AFTER)
        self._tell(outcome, monotonic() - began)
        # Every claim that follows at once finds other rows: those of this one were settled, or their topic is open.
        progress = outcome.accepted or outcome.charged or any(topic.outage for topic in delivered)
        following = Next.AGAIN if progress else Next.BACK_OFF
        return _sum(outcome.report, Report(next=following if claim.full else Next.IDLE))

    async def _probe(self, topic: str, monotonic: Callable[[], float]) -> Report:
        """Ask an open topic whether it takes one of its rows."""
        began = monotonic()
        async with self._outbox.batch() as batch:
            found = await batch.candidates(topic, self._circuits.place(topic))
            built = self._build(found.rows)
            delivery = self._delivery(topic, monotonic)
            rows = [pair for rows in built.by_topic.values() for pair in rows]
            rows.sort(key=lambda pair: not pair[0].attempt_count)  # suspects first, here too
            delivered = await delivery.probe(rows, self._policy.publish_seconds / PROBE_ROWS)
            outcome = self._judge(found.rows, built, [delivered])
            await _settle(batch, outcome)
        self._tell(outcome, monotonic() - began)
        self._conclude(topic, found, delivered, monotonic())
        return outcome.report

    def _conclude(self, topic: str, found: Candidates, delivered: Delivered, now: float) -> None:
        errors = [guilty.error for guilty in delivered.guilty]
        error = delivered.outage or next(iter(errors), None)
        if delivered.accepted or not found.seen:
            if not found.seen:
                self._suspects.pop(topic, None)
            probes, seconds = self._circuits.close(topic, now)
            self._claim_again_at = now
            self._observe(TopicClosed(topic, probes, seconds))
        elif error is None:
            self._circuits.not_asked(topic, now)
        else:
            probes, wait = self._circuits.in_vain(topic, found.last, now)
            self._observe(TopicProbed(topic, error, probes, wait))

    def _look_away(self, began: float, now: float) -> None:
        self._claim_again_at = now + min((now - began) / FRUITLESS_SHARE, self._policy.outage.most)

    def _build(self, rows: Sequence[Claimed]) -> _Built:
        built = _Built(defaultdict(list), [])
        topic_of = self._outbox.routes.topic_of
        for row in rows:
            topic = topic_of(row.topic, row.event_type)
            try:
                built.by_topic[topic].append((row, message_of(row)))
            except MessageError as error:
                found = verdict(Suspicion.NOT_BUILT, alone=True, control=False)
                built.guilty.append((topic, Guilty(row, error, found)))
        return built

    async def _deliver(
        self, by_topic: dict[str, list[Sendable]], monotonic: Callable[[], float]
    ) -> Sequence[Delivered]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._delivery(topic, monotonic).send(self._requests(topic, rows)))
                for topic, rows in by_topic.items()
                if rows
            ]
        delivered = [task.result() for task in tasks]
        for topic in delivered:
            self._remember(topic, monotonic())
        return delivered

    def _delivery(self, topic: str, monotonic: Callable[[], float]) -> Delivery:
        deadline = monotonic() + self._policy.publish_seconds
        return Delivery(topic, self._broker, monotonic, deadline, self._observe)

    def _requests(self, topic: str, rows: Sequence[Sendable]) -> Iterator[Sequence[Sendable]]:
        """Cut the rows into requests: suspects first and among themselves, so that the others are their control."""
        remembered = self._suspects.get(topic, frozenset())
        suspects: list[Sendable] = []
        others: list[Sendable] = []
        for pair in rows:
            row = pair[0]
            (suspects if row.attempt_count or row.id in remembered else others).append(pair)
        part = ceil(len(suspects) / SUSPECT_PARTS)
        for start in range(0, len(suspects), part or 1):
            yield from requests(suspects[start : start + part], self._broker.limits)
        yield from requests(others, self._broker.limits)

    def _remember(self, delivered: Delivered, now: float) -> None:
        topic = delivered.topic
        if delivered.suspects:
            self._suspects[topic] = delivered.suspects
        else:
            self._suspects.pop(topic, None)
        if delivered.outage is not None:
            self._observe(TopicOpened(topic, delivered.outage, self._circuits.open(topic, now)))

    def _judge(self, claimed: Sequence[Claimed], built: _Built, delivered: Sequence[Delivered]) -> _Outcome:
        guilty = [*built.guilty, *((topic.topic, row) for topic in delivered for row in topic.guilty)]
        charges = [
            (topic, row, charge(row.verdict, row.row.attempt_count, self._policy.attempts)) for topic, row in guilty
        ]
        return _Outcome(
            claimed=claimed,
            accepted=[pair for topic in delivered for pair in topic.accepted],
            charged=[(topic, row, charged) for topic, row, charged in charges if charged is not None],
        )

    def _tell(self, outcome: _Outcome, seconds: float) -> None:
        batch_size = len(outcome.claimed)
        failed = 0
        for topic, (row, error, _), charged in outcome.charged:
            count = charged.attempt_count
            if charged.reason is None:
                self._observe(RowRetried(row, topic, batch_size, error, count, charged.delay_seconds))
            else:
                failed += 1
                self._observe(RowFailed(row, topic, batch_size, error, count, charged.reason))
        if outcome.accepted or outcome.charged:
            self._observe(
                BatchSettled(
                    claimed=batch_size,
                    published=len(outcome.accepted),
                    retried=len(outcome.charged) - failed,
                    failed=failed,
                    size_bytes=sum(row.size_bytes for row in outcome.claimed),
                    seconds=seconds,
                    rows=outcome.accepted,
                )
            )


async def _settle(batch: Batch, outcome: _Outcome) -> None:
    crash_points.reached(Point.SETTLE_BEFORE)
    await batch.settle(
        [accepted for _, accepted in outcome.accepted],
        [
            Charged(
                row.row.id,
                code(row.error)[:CODE_CHARACTERS],
                sentence(row.error),
                charged.reason,
                charged.delay_seconds,
            )
            for _, row, charged in outcome.charged
        ],
    )
    crash_points.reached(Point.SETTLE_AFTER)
    crash_points.reached(Point.COMMIT_BEFORE)


def _sum(first: Report, then: Report) -> Report:
    return Report(
        processed=first.processed + then.processed,
        updated=first.updated + then.updated,
        skipped=first.skipped + then.skipped,
        errors=first.errors + then.errors,
        next=then.next,
    )
