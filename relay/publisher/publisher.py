"""The road's middle: a batch is claimed, published and settled inside one transaction.

What is settled is what the broker took. Rows of a request that failed are left as they were: the commit releases them,
and a later pass finds them again. A crash before the commit does the same with the whole batch, so a message may go out
twice and is never lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
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

# A claim stops at this size, whatever the number of rows: what a pass holds in memory is bounded.
CLAIM_BYTES = 16_000_000
ERROR_CHARACTERS = 1_024


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """What the publisher may take at once, and how long it waits."""

    topic: str
    batch_size: int
    publish_seconds: float
    pace: Pace

    @staticmethod
    def pace_of(poll: float, poll_jitter: float, outage_most: float) -> Pace:
        """A full batch is followed at once; an idle outbox is polled; a broker that fails is left alone for a while."""
        return Pace(
            busy=0,
            idle=Delay(first=poll, most=poll, jitter=poll_jitter),
            error=Delay(first=min(0.5, outage_most), most=outage_most, jitter=0.25),
        )


class _Built(NamedTuple):
    """A batch's messages by topic, and the rows that cannot become one."""

    by_topic: dict[str, list[tuple[Claimed, Message]]]
    refused: list[Refused]


class _Published(NamedTuple):
    """What became of a batch's requests."""

    accepted: list[Accepted]
    failed_requests: int


class Publisher:
    """The runner that publishes."""

    name = "publish"

    def __init__(self, outbox: Outbox, broker: Broker, policy: PublishPolicy, observe: Observe) -> None:
        self.pace = policy.pace
        self._outbox = outbox
        self._broker = broker
        self._policy = policy
        self._observe = observe

    async def run_once(self, budget: Budget) -> Report:
        """Publish batch after batch until nothing is due, the broker fails, or the budget is spent."""
        total = Report()
        while True:
            batch = await self._batch(budget)
            total = Report(
                processed=total.processed + batch.processed,
                updated=total.updated + batch.updated,
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
            published = await self._publish(built.by_topic)
            await batch.settle(published.accepted, built.refused)
        report = Report(
            processed=len(claim.rows),
            updated=len(published.accepted),
            errors=len(claim.rows) - len(published.accepted),
            next=_next(full=claim.full, published=published),
        )
        if claim.rows:
            self._observe(
                BatchSettled(
                    claimed=len(claim.rows),
                    published=len(published.accepted),
                    failed=len(built.refused),
                    size_bytes=sum(row.size_bytes for row in claim.rows),
                    seconds=budget.monotonic() - began,
                )
            )
        return report

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

    async def _publish(self, by_topic: dict[str, list[tuple[Claimed, Message]]]) -> _Published:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._request(topic, request))
                for topic, rows in by_topic.items()
                for request in requests(rows, self._broker.limits)
            ]
        answers = [task.result() for task in tasks]
        accepted = [row for answer in answers if answer is not None for row in answer]
        return _Published(accepted, sum(answer is None for answer in answers))

    async def _request(self, topic: str, rows: Sequence[tuple[Claimed, Message]]) -> list[Accepted] | None:
        """Publish one request; None when the broker did not take it."""
        try:
            ids = await self._broker.publish(topic, [message for _, message in rows], self._policy.publish_seconds)
        except BrokerError as error:
            self._observe(RequestFailed(topic, [row for row, _ in rows], error))
            return None
        return [Accepted(row.id, message_id) for (row, _), message_id in zip(rows, ids, strict=True)]


def _next(*, full: bool, published: _Published) -> Next:
    if published.failed_requests and not published.accepted:
        return Next.BACK_OFF
    # A topic that fails beside one that does not holds up its own rows, not the others.
    return Next.AGAIN if full else Next.IDLE
