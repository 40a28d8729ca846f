"""One topic's share of a batch: its requests are sent, and where one fails, it is found out who pays."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.brokers.broker import Broker
from relay.kernel.observe import Observe
from relay.outbox.outbox import Accepted, Claimed
from relay.publisher import crash_points
from relay.publisher.crash_points import Point
from relay.publisher.events import RequestFailed
from relay.publisher.failures import Suspicion, Verdict, suspicion, verdict
from relay.publisher.isolation import Isolation
from relay.publisher.message import Sendable


class Guilty(NamedTuple):
    """A row that pays, and for what."""

    row: Claimed
    error: Exception
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a topic's share of a batch. Rows that are in none of these are released as they were."""

    topic: str
    accepted: Sequence[tuple[Claimed, Accepted]] = ()
    guilty: Sequence[Guilty] = ()
    # Rows of requests that failed, and of which it is not known whether they are at fault.
    suspects: frozenset[int] = frozenset()
    outage: Exception | None = None  # why the topic's circuit opens


@dataclass(slots=True)
class _Failed:
    """A request that was not taken."""

    rows: Sequence[Sendable]
    error: Exception
    sent: int  # its number among the requests of this delivery
    first: int  # that of the request in which its rows failed first


@dataclass(slots=True)
class Delivery:
    """Sends requests to one topic, never past the deadline, and never raises for what the broker does."""

    topic: str
    broker: Broker
    monotonic: Callable[[], float]
    deadline: float
    observe: Observe
    _accepted: list[tuple[Claimed, Accepted]] = field(default_factory=list)
    _alone: list[_Failed] = field(default_factory=list)
    _unresolved: list[_Failed] = field(default_factory=list)
    _sent: int = 0
    _last_taken: int = 0
    _hopeless: bool = False

    async def send(self, requests: Iterable[Sequence[Sendable]]) -> Delivered:
        """Send the requests side by side, then look for the rows at fault in those that failed."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._request(rows)) for rows in requests]
            await asyncio.sleep(0)
            crash_points.reached(Point.PUBLISH_AFTER)
        for failed in [task.result() for task in tasks]:
            if failed is not None:
                await self._examine(failed)
        return self._delivered()

    async def probe(self, rows: Iterable[Sendable], seconds: float) -> Delivered:
        """Send the rows one by one, each within these seconds, until the topic takes one."""
        for row in rows:
            if self.monotonic() >= self.deadline:
                break
            failed = await self._request([row], seconds)
            if failed is None:
                break
            await self._examine(failed)
            if self._verdict(failed, control=True) is Verdict.TOPIC_OUTAGE:
                break  # what others would answer changes nothing
        return self._delivered()

    async def _request(
        self, rows: Sequence[Sendable], seconds: float | None = None, first: int | None = None
    ) -> _Failed | None:
        self._sent += 1
        number = self._sent
        left = self.deadline - self.monotonic()
        crash_points.reached(Point.PUBLISH_BEFORE)
        try:
            ids = await self.broker.publish(
                self.topic, [message for _, message in rows], left if seconds is None else min(left, seconds)
            )
            crash_points.reached(Point.ACK_BEFORE)
            accepted = [
                (row, Accepted(row.id, message_id, self.topic)) for (row, _), message_id in zip(rows, ids, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 -- whatever an adapter raises: others of the batch must be settled
            self.observe(RequestFailed(self.topic, [row for row, _ in rows], error))
            return _Failed(rows, error, number, number if first is None else first)
        self._accepted += accepted
        self._last_taken = max(self._last_taken, number)
        crash_points.reached(Point.ACK_AFTER)
        return None

    async def _examine(self, failed: _Failed) -> None:
        isolate = self._verdict(failed, control=False) is Verdict.ISOLATE
        if len(failed.rows) == 1:
            self._alone.append(failed)
        elif isolate and not self._hopeless:
            await self._isolate(failed)
        else:
            self._unresolved.append(failed)

    async def _isolate(self, failed: _Failed) -> None:
        isolation = Isolation(len(failed.rows), control=self._last_taken > failed.sent)
        stopped_by = failed.error
        while self.monotonic() < self.deadline and (part := isolation.next()) is not None:
            answer = await self._request(failed.rows[part.start : part.stop], first=failed.first)
            if answer is None:
                isolation.taken()
                continue
            suspected = suspicion(answer.error)
            isolation.failed(part, like_an_outage=suspected is Suspicion.PATH)
            if len(part) == 1:
                self._alone.append(answer)
            stopped_by = answer.error
            if suspected in {Suspicion.THROTTLE, Suspicion.TOPIC}:
                break
        self._hopeless = not self._last_taken
        since = self._sent if isolation.hopeless else failed.sent
        for part in isolation.unresolved:
            rows = failed.rows[part.start : part.stop]
            self._unresolved.append(_Failed(rows, stopped_by, since, failed.first))

    def _verdict(self, failed: _Failed, *, control: bool) -> Verdict:
        return verdict(suspicion(failed.error), alone=len(failed.rows) == 1, control=control)

    def _delivered(self) -> Delivered:
        judged = [
            (failed, self._verdict(failed, control=self._control(failed)))
            for failed in (*self._unresolved, *self._alone)
        ]
        return Delivered(
            topic=self.topic,
            accepted=self._accepted,
            guilty=[
                Guilty(failed.rows[0][0], failed.error, found)
                for failed, found in judged
                if found in {Verdict.ROW_INVALID, Verdict.ROW_STRIKE}
            ],
            suspects=frozenset(
                row.id
                for failed, found in judged
                if found in {Verdict.ISOLATE, Verdict.TOPIC_OUTAGE}
                for row, _ in failed.rows
            ),
            outage=next(
                (
                    failed.error
                    for failed, found in judged
                    if found is Verdict.TOPIC_OUTAGE or (found is Verdict.ISOLATE and not self._control(failed))
                ),
                None,
            ),
        )

    def _control(self, failed: _Failed) -> bool:
        """Whether the topic took something that was sent after the request.

        A wrong message is told from a wrong topic by whatever the topic took since the message failed first. That the
        broker was there is told only by what it took after the row failed alone.
        """
        since = failed.first if suspicion(failed.error) is Suspicion.MESSAGE else failed.sent
        return self._last_taken > since
