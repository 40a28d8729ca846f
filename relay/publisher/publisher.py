"""The road's middle: a batch is claimed, published and settled inside one transaction.

What is settled is what the broker took, and who pays for what it did not (`failures`). All other rows are left as they
were: the commit releases them, and a later pass finds them again. A crash before the commit does the same with the
whole batch, so a message may go out twice and is never lost.

While there is more than one batch to do, several are under way, each in a slot of its own: one is claimed while the
messages of another travel. With nothing but a few rows there is one slot, and one connection.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from relay.brokers.broker import Broker
from relay.errors import NoFurtherSessionError
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Report
from relay.outbox.batch import Batch
from relay.outbox.floors import Floors
from relay.outbox.outbox import Outbox
from relay.outbox.rows import Claim, Claimed
from relay.publisher import crash_points
from relay.publisher.circuits import Circuits
from relay.publisher.crash_points import Point
from relay.publisher.events import SlotsLacking
from relay.publisher.outcome import Built, build, judge, settle
from relay.publisher.policy import PublishPolicy
from relay.publisher.probes import FRUITLESS_SHARE, Probes
from relay.publisher.sender import Sender, types_of
from relay.publisher.slots import More, side_by_side

# Of each kind a claim stops behind the row with which it reaches this size, however few they are: with the number
# of slots, it bounds what a relay holds in memory, and what a slow line has to carry.
CLAIM_BYTES = 4_000_000
# A claim that had to wait for so long, as for a lock of the table, is given back where the pass is to end by now: what
# would be sent might not be marked in time.
LONG_CLAIM_SECONDS = 3.0
# Where the database takes no further session, none is asked for again until so long after.
LACKING_SECONDS = 60.0


@dataclass(slots=True)
class _Done:
    """What the slots of a pass have done until now."""

    reports: list[Report] = field(default_factory=list)
    begun: bool = False
    unfinished: bool = False  # a slot ended with the budget, and would have gone on

    @property
    def processed(self) -> int:
        """Of all of them."""
        return sum(report.processed for report in self.reports)

    @property
    def updated(self) -> int:
        """Of all of them."""
        return sum(report.updated for report in self.reports)

    @property
    def report(self) -> Report:
        """The pass's own. Whoever ended last has seen what all others have done."""
        return Report(
            processed=self.processed,
            updated=self.updated,
            skipped=sum(report.skipped for report in self.reports),
            errors=sum(report.errors for report in self.reports),
            next=Next.AGAIN if self.unfinished else self.reports[-1].next,
        )


class Publisher:
    """The runner that publishes."""

    name = "publish"

    def __init__(self, outbox: Outbox, broker: Broker, policy: PublishPolicy, observe: Observe) -> None:
        self.pace = policy.pace
        self._circuits = Circuits(policy.outage)
        self._sender = Sender(broker, policy, self._circuits, observe)
        self._probes = Probes(outbox, policy, self._circuits, self._sender, observe)
        self._claim_again_at = 0.0
        self._lacking_until = 0.0  # no further session is asked for
        self._probing = False
        self._in_vain = 0.0  # seconds of claims in a row that found nothing beside open topics
        self._finds = 0  # claims that found rows
        self._in_hand = 0  # batches under way that have some
        self._settled_in_round = False  # since the claims began to come by the keys
        self._outbox = outbox
        self._broker = broker
        self._policy = policy
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Publish batch after batch until nothing can be published now, or the budget is spent."""
        done = _Done()
        slot = partial(self._slot, budget, done)
        try:
            await side_by_side(self._policy.slots, slot, self._policy.patience, lambda: not self._outbox.looking())
        except BaseException:  # a cancellation, too: what the database had to say may be another thing by now
            self._lacking_until = 0.0
            raise
        return done.report

    @property
    def floors(self) -> Floors:
        """Where its claims start."""
        return self._outbox.floors

    def closed(self) -> tuple[Sequence[str], Sequence[str]]:
        """The topics that wait for their next probe, which no event announces, and the event types that go there."""
        return self._circuits.open_topics, self._circuits.open_types

    async def close(self) -> None:
        """Close the connections of both sides."""
        await self._outbox.close()
        await self._broker.close()

    async def _slot(self, budget: Budget, done: "_Done", more: More) -> bool:
        """Do one unit of work; whether there is more to do at once."""
        if done.begun and budget.spent(done.processed):
            done.unfinished = True
            return False
        if done.begun and budget.monotonic() < self._lacking_until and not self._outbox.has_session:
            return False
        done.begun = True
        try:
            return await self._unit(budget, done, more)
        except NoFurtherSessionError as error:
            self._lacking_until = budget.monotonic() + LACKING_SECONDS
            self._observe(SlotsLacking(error.reason, LACKING_SECONDS))
            return False

    async def _unit(self, budget: Budget, done: "_Done", more: More) -> bool:
        """Ask the open topics whose time it is, then publish one batch; whether there is more to do at once."""
        # In one slot at a time: however many topics hang, others go on beside them.
        if not self._probing and (asked := self._probes.due(budget.monotonic())):
            more()
            await self._probe(asked, budget, done)
            if budget.spent(done.processed):
                done.unfinished = True
                return False
        before = done.updated
        report = await self._batch(budget, more)
        if report.next is Next.BACK_OFF and done.updated > before:
            # What it could not do was in hand of another slot, which has done it meanwhile.
            report = replace(report, next=Next.AGAIN)
        done.reports.append(report)
        if budget.spent(done.processed):
            done.unfinished |= report.next is Next.AGAIN
            return False
        return report.next is Next.AGAIN or bool(not self._probing and self._probes.due(budget.monotonic()))

    async def _probe(self, topics: Sequence[str], budget: Budget, done: "_Done") -> None:
        self._probing = True
        try:
            done.reports.append(await self._probes.ask(topics, budget.monotonic))
        finally:
            self._probing = False
        if not all(map(self._circuits.is_open, topics)):
            self._claim_again_at = budget.monotonic()
            # What the outage gave back lies below the fast floor, also where no claim has met the circuit.
            self._outbox.floors.rewind()

    async def _batch(self, budget: Budget, more: More) -> Report:
        monotonic = budget.monotonic
        began = monotonic()
        if began < self._claim_again_at and not self._outbox.floors.rewound:
            return Report(next=Next.IDLE)
        crash_points.reached(Point.CLAIM_BEFORE)
        async with self._outbox.batch() as batch:
            claim = await self._claim(batch, monotonic)
            if claim.full or claim.unseen:
                more()
            crash_points.reached(Point.CLAIM_AFTER)
            if monotonic() - began > LONG_CLAIM_SECONDS and budget.spent(0):
                return Report(next=Next.AGAIN)
            built = build(claim.rows, self._policy.routes, self._policy.failed_head)
            news = self._learn(built)
            with self._has(claim.rows):
                delivered = await self._sender.send(batch, built.by_topic, monotonic)
                outcome = judge(claim.rows, built, delivered, self._policy.attempts, self._policy.failed_head)
                await settle(batch, outcome, self._policy.said)
        crash_points.reached(Point.COMMIT_AFTER)
        for event in outcome.events(monotonic() - began):
            self._observe(event)
        # Every claim that follows at once finds other rows: those of this one were settled, or are known to be of an
        # open topic.
        settled = outcome.settles or self._settled_in_round
        self._settled_in_round = settled and claim.unseen
        progress = news or settled or any(topic.outage for topic in delivered)
        following = Next.AGAIN if progress or claim.unseen else Next.BACK_OFF
        left = claim.full or claim.unseen or built.left_behind or news
        return replace(outcome.report, next=following if left else Next.IDLE)

    async def _claim(self, batch: Batch, monotonic: Callable[[], float]) -> Claim:
        began, finds, others = monotonic(), self._finds, self._in_hand
        topics = self._circuits.open_topics
        claim = await batch.claim(self._policy.batch_size, CLAIM_BYTES, topics, self._circuits.open_types)
        # Not in vain where this round has left rows behind, or batches beside this one have those that could be found.
        vain = topics and not (claim.rows or claim.full or others or finds < self._finds)
        self._in_vain = self._in_vain + monotonic() - began if vain else 0.0
        if self._in_vain and not claim.unseen:
            self._claim_again_at = monotonic() + min(self._in_vain / FRUITLESS_SHARE, self._policy.outage.most)
            self._in_vain = 0.0
        return claim

    @contextmanager
    def _has(self, rows: Sequence[Claimed]) -> Iterator[None]:
        """A batch has these rows for the length of the block."""
        found = bool(rows)
        self._finds += found
        self._in_hand += found
        try:
            yield
        finally:
            self._in_hand -= found

    def _learn(self, built: Built) -> bool:
        """Take out rows of open topics, which were claimed because their event type was not known yet."""
        news = False
        for topic in [topic for topic in built.by_topic if self._circuits.is_open(topic)]:
            news |= self._circuits.learn(topic, types_of(built.by_topic.pop(topic)))
        return news
