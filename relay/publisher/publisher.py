"""The road's middle: a batch is claimed, published and settled inside one transaction.

What is settled is what the broker took. Rows of a request that failed are left as they were: the commit releases them,
and a later pass finds them again. A crash before the commit does the same with the whole batch, so a message may go out
twice and is never lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from relay.brokers.broker import Broker
from relay.envelope import Message
from relay.errors import BrokerError, MessageError
from relay.kernel.backoff import Delay
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.outbox.outbox import Accepted, Claimed, Outbox, Refused
from relay.publisher.events import BatchSettled, RequestFailed, RowFailed
from relay.publisher.message import message_of, requests
from relay.publisher.rests import Rests

# A claim stops at this size, whatever the number of rows: it bounds what a pass holds in memory, and what a slow line
# has to carry within the publish budget.
CLAIM_BYTES = 4_000_000
ERROR_CHARACTERS = 1_024

# Rows of one topic with their messages.
Sendable = Sequence[tuple[Claimed, Message]]


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """What the publisher may take at once, and how long it waits.

    An idle outbox is polled, a topic that fails rests; so does the publisher itself after an error of its own.
    """

    topic: str
    batch_size: int
    publish_seconds: float
    poll: Delay
    outage: Delay

    @property
    def pace(self) -> Pace:
        """A full batch is followed at once."""
        return Pace(busy=0, idle=self.poll, error=self.outage)


class _Built(NamedTuple):
    """A batch's messages by topic, and the rows that cannot become one."""

    by_topic: dict[str, list[tuple[Claimed, Message]]]
    refused: list[Refused]


class _Taken(NamedTuple):
    """The broker took a request."""

    topic: str
    accepted: list[Accepted]


class _NotTaken(NamedTuple):
    """The broker did not take a request of so many rows."""

    topic: str
    rows: int


class _Broken(NamedTuple):
    """An adapter failed over a request in a way that no broker answers; whether it was taken is unknown."""

    error: Exception


_Answer = _Taken | _NotTaken | _Broken


class _Published(NamedTuple):
    """What became of a batch's messages."""

    accepted: list[Accepted]
    failed: int
    resting: int
    errors: list[Exception]


class Publisher:
    """The runner that publishes."""

    name = "publish"

    def __init__(self, outbox: Outbox, broker: Broker, policy: PublishPolicy, observe: Observe) -> None:
        self.pace = policy.pace
        self._rests = Rests(policy.outage)
        self._outbox = outbox
        self._broker = broker
        self._policy = policy
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Publish batch after batch until nothing can be published now, or the budget is spent."""
        total = Report()
        while True:
            batch = await self._batch(budget)
            total = Report(
                processed=total.processed + batch.processed,
                updated=total.updated + batch.updated,
                skipped=total.skipped + batch.skipped,
                errors=total.errors + batch.errors,
                next=batch.next,
            )
            if batch.next is not Next.AGAIN or budget.spent(total.processed):
                return total

    async def close(self) -> None:
        """Close both connections."""
        await self._outbox.close()
        await self._broker.close()

    async def _batch(self, budget: Budget) -> Report:
        began = budget.monotonic()
        async with self._outbox.batch() as batch:
            claim = await batch.claim(self._policy.batch_size, CLAIM_BYTES)
            built = self._build(claim.rows)
            published = await self._publish(built.by_topic, budget.monotonic)
            await batch.settle(published.accepted, built.refused)
        settled = len(published.accepted) + len(built.refused)
        if settled:
            self._observe(
                BatchSettled(
                    claimed=len(claim.rows),
                    published=len(published.accepted),
                    failed=len(built.refused),
                    size_bytes=sum(row.size_bytes for row in claim.rows),
                    seconds=budget.monotonic() - began,
                )
            )
        if published.errors:
            raise ExceptionGroup("the broker's adapter failed", published.errors)
        return Report(
            processed=len(claim.rows),
            updated=len(published.accepted),
            skipped=published.resting,
            errors=len(built.refused) + published.failed,
            next=_next(full=claim.full, settled=settled),
        )

    def _build(self, rows: Sequence[Claimed]) -> _Built:
        built = _Built(defaultdict(list), [])
        for row in rows:
            try:
                message = message_of(row)
            except MessageError as error:
                built.refused.append(Refused(row.id, error.code, str(error)[:ERROR_CHARACTERS]))
                self._observe(RowFailed(row, self._topic(row), len(rows), error))
            else:
                built.by_topic[self._topic(row)].append((row, message))
        return built

    def _topic(self, row: Claimed) -> str:
        return row.topic or self._policy.topic

    async def _publish(
        self, by_topic: dict[str, list[tuple[Claimed, Message]]], monotonic: Callable[[], float]
    ) -> _Published:
        now = monotonic()
        awake = {topic: rows for topic, rows in by_topic.items() if not self._rests.resting(topic, now)}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._request(topic, request))
                for topic, rows in awake.items()
                for request in requests(rows, self._broker.limits)
            ]
        answers = [task.result() for task in tasks]
        self._remember(answers, monotonic())
        return _Published(
            accepted=list(chain.from_iterable(answer.accepted for answer in answers if isinstance(answer, _Taken))),
            failed=sum(answer.rows for answer in answers if isinstance(answer, _NotTaken)),
            resting=sum(len(rows) for topic, rows in by_topic.items() if topic not in awake),
            errors=[answer.error for answer in answers if isinstance(answer, _Broken)],
        )

    async def _request(self, topic: str, rows: Sendable) -> _Answer:
        """Publish one request. Never raises: what other requests of the batch achieve must be settled."""
        try:
            ids = await self._broker.publish(topic, [message for _, message in rows], self._policy.publish_seconds)
            accepted = [Accepted(row.id, message_id, topic) for (row, _), message_id in zip(rows, ids, strict=True)]
        except BrokerError as error:
            self._observe(RequestFailed(topic, [row for row, _ in rows], error))
            return _NotTaken(topic, len(rows))
        except Exception as error:  # noqa: BLE001 -- raised again once the batch is settled
            return _Broken(error)
        return _Taken(topic, accepted)

    def _remember(self, answers: Sequence[_Answer], now: float) -> None:
        refused = {answer.topic for answer in answers if isinstance(answer, _NotTaken)}
        for topic in refused:
            self._rests.refused(topic, now)
        for topic in {answer.topic for answer in answers if isinstance(answer, _Taken)} - refused:
            self._rests.taken(topic)


def _next(*, full: bool, settled: int) -> Next:
    if not full:
        return Next.IDLE
    # A full claim of which nothing could be settled would be the same claim again.
    return Next.AGAIN if settled else Next.BACK_OFF
