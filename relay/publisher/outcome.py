"""What becomes of the rows of one transaction: built into messages, judged, settled, and told of."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.envelope import Message, topic_fault
from relay.errors import MessageError
from relay.failed_head import FailedHead
from relay.kernel.line_redaction import Words
from relay.kernel.runner import Report
from relay.outbox.batch import Batch
from relay.outbox.rows import Charged, Claimed, Taken
from relay.publisher import crash_points
from relay.publisher.crash_points import Point
from relay.publisher.delivered import Delivered, Guilty
from relay.publisher.events import BatchSettled, KeyRests, RowFailed, RowRetried
from relay.publisher.failures import Attempts, Charge, Suspicion, charge, verdict
from relay.publisher.message import Sendable, message_of
from relay.publisher.policy import Said
from relay.routes import Routes

CODE_CHARACTERS = 64
# No topic has this name.
_NO_TOPIC = ""


@dataclass(frozen=True, slots=True)
class Built:
    """The messages of claimed rows by topic, and the rows that can never become one, with theirs.

    Of a key all go to one topic, and none stands behind a row that blocks it.
    """

    by_topic: dict[str, list[Sendable]]
    guilty: list[tuple[str, Guilty]]
    left_behind: int = 0  # rows that wait for an earlier one of their key


class Charging(NamedTuple):
    """A row of a topic that pays, and what."""

    topic: str
    guilty: Guilty
    charge: Charge
    blocks_key: bool

    def charged(self, said: Words) -> Charged:
        """What the outbox is to remember of it; `said` of the error."""
        paid, reason = self.charge, said.code[:CODE_CHARACTERS]
        return Charged(
            self.guilty.row.id, paid.attempts, reason, said.error, paid.reason, self.blocks_key, paid.delay_seconds
        )

    def event(self, batch_size: int) -> RowFailed | RowRetried | KeyRests:
        """What happened to the row."""
        (row, error, _), paid = self.guilty, self.charge
        if not paid.attempts:
            return KeyRests(row, self.topic, batch_size, error, paid.delay_seconds)
        attempts = row.attempt_count + paid.attempts
        if paid.reason is None:
            return RowRetried(row, self.topic, batch_size, error, attempts, paid.delay_seconds)
        return RowFailed(row, self.topic, batch_size, error, attempts, paid.reason, self.blocks_key)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transaction settles; rows that are in none of these are released as they were."""

    claimed: Sequence[Claimed]
    accepted: Mapping[str, Sequence[Taken]]  # by topic
    charged: Sequence[Charging]
    released: int  # of requests that failed

    @property
    def published(self) -> int:
        """How many the broker has taken."""
        return sum(map(len, self.accepted.values()))

    @property
    def settles(self) -> bool:
        """Whether anything changes."""
        return bool(self.accepted or self.charged)

    @property
    def report(self) -> Report:
        """What it adds to the pass's report. Skipped are rows that nobody was asked for."""
        claimed, published = len(self.claimed), self.published
        errors = len(self.charged) + self.released
        return Report(processed=claimed, updated=published, skipped=claimed - published - errors, errors=errors)

    def events(self, seconds: float) -> Iterator[object]:
        """What happened, once it is committed."""
        failed = sum(charging.charge.reason is not None for charging in self.charged)
        paid = sum(charging.charge.attempts for charging in self.charged)
        for charging in self.charged:
            yield charging.event(len(self.claimed))
        if self.settles:
            yield BatchSettled(
                claimed=len(self.claimed),
                published=self.published,
                retried=paid - failed,
                failed=failed,
                size_bytes=sum([row.size_bytes for row in self.claimed]),
                seconds=seconds,
                taken=self.accepted,
            )


def build(rows: Iterable[Claimed], routes: Routes, head: FailedHead) -> Built:
    """Make a message of every row that can become one, and find its topic."""
    by_topic: dict[str, list[Sendable]] = defaultdict(list)
    guilty: list[tuple[str, Guilty]] = []
    left_behind = 0
    places: dict[tuple[str | None, str], tuple[str, str | None]] = {}
    topics_of_keys: dict[str, str] = {}
    for row in rows:
        named = (row.topic, row.event_type)
        place = places.get(named)
        if place is None:
            topic = routes.topic_of(*named)
            place = places[named] = topic, topic_fault(topic)
        topic, fault = place
        if row.ordering_key is not None and topics_of_keys.setdefault(row.ordering_key, topic) != topic:
            topics_of_keys[row.ordering_key] = _NO_TOPIC
            left_behind += 1
            continue
        try:
            message = _message(row, fault)
        except MessageError as error:
            found = verdict(Suspicion.NOT_BUILT, alone=True, control=False)
            guilty.append((topic, Guilty(row, error, found)))
            if row.ordering_key is not None and head.blocks(row.event_type):
                topics_of_keys[row.ordering_key] = _NO_TOPIC
        else:
            # Not sooner: a topic without a message is none to send to.
            by_topic[topic].append((row, message))
    return Built(by_topic, guilty, left_behind)


def _message(row: Claimed, topic_fault: str | None) -> Message:
    if topic_fault:
        raise MessageError("invalid_topic", f"the row's topic {topic_fault}")
    return message_of(row)


def judge(
    claimed: Sequence[Claimed], built: Built, delivered: Sequence[Delivered], attempts: Attempts, head: FailedHead
) -> Outcome:
    """Find out what every row's attempt came to."""
    guilty = [*built.guilty, *((topic.topic, row) for topic in delivered for row in topic.guilty)]
    charges = [(topic, row, charge(row.verdict, row.row.attempt_count, attempts)) for topic, row in guilty]
    return Outcome(
        claimed=[*claimed, *(row for topic in delivered for row in topic.controls)],
        accepted={topic.topic: topic.accepted for topic in delivered if topic.accepted},
        charged=[
            Charging(topic, guilty, paid, blocks_key=_blocks_key(guilty.row, paid, head))
            for topic, guilty, paid in charges
            if paid is not None
        ],
        released=sum(len(topic.suspects) for topic in delivered),
    )


def _blocks_key(row: Claimed, paid: Charge, head: FailedHead) -> bool:
    return paid.reason is not None and row.ordering_key is not None and head.blocks(row.event_type)


async def settle(batch: Batch, outcome: Outcome, said: Said) -> None:
    """Write down what the outcome changes, and commit. `said` has the words in which an error is kept."""
    rows = len(outcome.claimed)
    crash_points.reached(Point.SETTLE_BEFORE)
    async with batch.settling():
        batch.mark(outcome.accepted, [each.charged(said(each.event(rows))) for each in outcome.charged])
        crash_points.reached(Point.SETTLE_AFTER)
        crash_points.reached(Point.COMMIT_BEFORE)
