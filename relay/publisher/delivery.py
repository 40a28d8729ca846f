"""One topic's share of a batch: its requests are sent, and where one fails, it is found out who pays.

A row pays when it failed alone, the topic then took another row, and the row failed alone once more. What makes others
fail for a while, and ends, accuses nobody: the row is taken the second time. Where no other row of the batch is taken,
one of the topic's newest is asked for. Without any, a row pays only when it alone is left of a request that failed, and
failed in every part of it, one of them after others had been taken.

The rows of an ordering key go out one request after the other, in a lane of their own, up to the first that fails.
What is sent of a key to find out who pays begins with its first row that is not out. What stands behind one that was
not taken is not sent, and so cannot be its control: other keys are, rows without a key, and those before it in the
request that failed, once they were taken without it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from relay.brokers.broker import Broker
from relay.kernel.observe import Observe
from relay.outbox.rows import Claimed, Taken
from relay.publisher import crash_points
from relay.publisher.crash_points import Point
from relay.publisher.delivered import Delivered, Failed, Guilty
from relay.publisher.events import RequestFailed
from relay.publisher.failures import Suspicion, Verdict, verdict
from relay.publisher.isolation import Isolation
from relay.publisher.message import Sendable

# So many keys of a topic have a request under way at once.
LANES_AT_ONCE = 64
# After so many keys whose first rows failed alone, and nothing of the topic taken since, no further ones are searched.
LANES_IN_VAIN = 2

# Claims more of a topic's rows, to be asked as controls.
Reserve = Callable[[], Awaitable[list[Sendable]]]


@dataclass(slots=True)
class Delivery:
    """Sends requests to one topic, and never raises for what the broker does.

    Each request has the same time, and is sent only while all of it is left before the deadline: what an answer says
    never depends on when it was asked for.
    """

    topic: str
    broker: Broker
    monotonic: Callable[[], float]
    request_seconds: float
    deadline: float
    observe: Observe
    reserve: Reserve
    _accepted: list[Taken] = field(default_factory=list)
    _guilty: list[Guilty] = field(default_factory=list)
    _released: list[Failed] = field(default_factory=list)  # not examined to the end
    _alone: list[Failed] = field(default_factory=list)  # requests of one row
    _followed: set[int] = field(default_factory=set)  # rows of parts that failed after others had been taken
    _in_vain: int = 0  # keys that were searched while nothing was taken
    _controls: list[Sendable] | None = None
    _asked: list[Claimed] = field(default_factory=list)
    _permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LANES_AT_ONCE))
    _refused: Exception | None = None  # why a control was not taken
    _outage: Exception | None = None
    _sent: int = 0
    _last_taken: int = 0

    async def send(
        self, requests: Iterable[Sequence[Sendable]], lanes: Iterable[Sequence[Sequence[Sendable]]] = ()
    ) -> Delivered:
        """Send requests and lanes side by side, then look for the rows at fault in the requests that failed."""
        async with asyncio.TaskGroup() as group:
            # In this order: requests of rows without a key are controls of the lanes.
            tasks = [group.create_task(self._follow(lane)) for lane in lanes]
            tasks += [group.create_task(self._request(rows)) for rows in requests]
            await asyncio.sleep(0)  # every request is under way
            crash_points.reached(Point.PUBLISH_AFTER)
        failures = [failed for task in tasks if (failed := task.result()) is not None]
        for failed in failures:
            await self._examine(failed)
        left_alone = self._left_alone(failures)
        lacking = [failed for failed in self._alone if not self._speaks(failed, left_alone)]
        if any(failed.worth_a_control for failed in lacking) and self._outage is None:
            await self._take_control()
        await self._confirm(left_alone)
        return self._delivered()

    async def probe(self, rows: Iterable[Sendable]) -> Delivered:
        """Send the rows one by one until the topic takes one."""
        for row in rows:
            failed = await self._request([row]) if self._has_time() else None
            if failed is None:
                break
            self._alone.append(failed)
            if failed.suspicion is Suspicion.TOPIC:
                break  # what others would answer changes nothing
        await self._confirm(frozenset())
        return self._delivered()

    async def _follow(self, lane: Sequence[Sequence[Sendable]]) -> Failed | None:
        """Send a key's requests one after the other, up to the first that fails."""
        for rows in lane:
            async with self._permits:
                failed = await self._request(rows) if self._has_time() else None
            if failed:
                return failed
        return None

    async def _request(self, rows: Sequence[Sendable]) -> Failed | None:
        self._sent += 1
        number = self._sent
        crash_points.reached(Point.PUBLISH_BEFORE)
        try:
            ids = await self.broker.publish(self.topic, [message for _, message in rows], self.request_seconds)
            crash_points.reached(Point.ACK_BEFORE)
            accepted = list(zip([row for row, _ in rows], ids, strict=True))
        except Exception as error:  # noqa: BLE001 -- whatever an adapter raises: others of the batch must be settled
            self.observe(RequestFailed(self.topic, [row for row, _ in rows], error))
            return Failed(rows, error, number)
        self._accepted += accepted
        self._last_taken = max(self._last_taken, number)
        crash_points.reached(Point.ACK_AFTER)
        return None

    async def _examine(self, failed: Failed) -> None:
        if failed.keyed and failed.suspicion is Suspicion.THROTTLE:
            self._alone.append(Failed(failed.rows[:1], failed.error, failed.sent))
        elif len(failed.rows) == 1:
            self._alone.append(failed)
        elif verdict(failed.suspicion, alone=False, control=False) is Verdict.ISOLATE and self._outage is None:
            await (self._search(failed) if failed.keyed else self._isolate(failed))
        else:
            self._outage = self._outage or failed.error
            self._released.append(failed)

    async def _isolate(self, failed: Failed) -> None:
        isolation = Isolation(len(failed.rows), control=self._has_control(failed))
        last = failed
        taken = False
        while self._has_time():
            part = isolation.next()
            if part is None:
                if not (isolation.unresolved and await self._take_control()):
                    break
                isolation.reassured()
                continue
            answer = await self._request(failed.rows[part.rows.start : part.rows.stop])
            if answer is None:
                isolation.taken(part)
                taken = True
                continue
            last = answer
            if taken and len(part.rows) > 1:
                self._followed.update(row.id for row, _ in answer.rows)
            isolation.failed(part, hurry=not self._has_time(2))
            if len(part.rows) == 1:
                self._alone.append(answer)
            if not answer.suspicion.of_a_row:
                self._outage = answer.error
                break
        unresolved = isolation.unresolved
        if unresolved and (isolation.hopeless or not self._has_control(failed)):
            self._outage = self._outage or last.error
        self._released += [Failed(failed.rows[rows.start : rows.stop], last.error, last.sent) for rows in unresolved]

    async def _search(self, failed: Failed) -> None:
        """Find the first row of a key's request that is not taken. What stands behind it waits."""
        if self._in_vain >= LANES_IN_VAIN and not self._has_control(failed):
            self._outage = failed.error
            self._released.append(failed)
            return
        rows, last = failed.rows, failed
        while rows and self._has_time():
            part = rows[: max(1, len(rows) // 2)]
            answer = await self._request(part)
            if answer is None:
                rows = rows[len(part) :]
                continue
            last, rows = answer, part
            if answer.suspicion is Suspicion.THROTTLE:
                self._alone.append(Failed(part[:1], answer.error, failed.sent))
                return
            if not answer.suspicion.of_a_row:
                self._outage = answer.error
                break
            if len(part) == 1:
                self._alone.append(Failed(part, answer.error, failed.sent))
                if not (self._has_control(failed) or await self._take_control()):
                    self._in_vain += 1
                return
        if rows:
            if not self._has_control(failed):
                self._outage = self._outage or last.error
            self._released.append(Failed(rows, last.error, last.sent))

    async def _take_control(self) -> bool:
        """Send one of the topic's newest rows; whether it was taken."""
        if self._controls is None:
            self._controls = await self.reserve()
        if not (self._controls and self._has_time()):
            return False
        row = self._controls.pop(0)
        self._asked.append(row[0])
        failed = await self._request([row])
        if failed is None:
            return True
        self._refused = failed.error
        self._controls = []  # one is enough to see that nothing is taken now
        return False

    def _left_alone(self, failures: Sequence[Failed]) -> frozenset[int]:
        """The rows that alone were not taken of a request, and failed in parts of it after others had been taken."""
        taken = {row.id for row, _ in self._accepted}
        left = [
            [row.id for row, _ in failed.rows if row.id not in taken] for failed in failures if len(failed.rows) > 1
        ]
        return frozenset(rows[0] for rows in left if len(rows) == 1 and rows[0] in self._followed)

    async def _confirm(self, left_alone: frozenset[int]) -> None:
        """Ask once more for each row that failed alone, and has a control: it pays when it fails again."""
        waiting: list[Failed] = []
        for failed in self._alone:
            rests = failed.suspicion is Suspicion.THROTTLE and self._has_control(failed)
            found = verdict(failed.suspicion, alone=True, control=rests, keyed=failed.keyed)
            if found is Verdict.TOPIC_OUTAGE:
                waiting.append(failed)
            else:
                self._guilty.append(Guilty(failed.rows[0][0], failed.error, found))
        twice: list[Failed] = []
        while asked := [failed for failed in waiting if self._may_be_asked(failed, left_alone)]:
            waiting = [failed for failed in waiting if failed not in asked]
            async with asyncio.TaskGroup() as group:  # what hangs, hangs side by side
                tasks = [group.create_task(self._follow([failed.rows])) for failed in asked]
            twice += [again for task in tasks if (again := task.result()) is not None]
        for failed in waiting:
            if not (failed.suspicion.of_a_row and self._speaks(failed, left_alone)):
                self._outage = self._outage or failed.error
            self._released.append(failed)
        await self._convict_all(twice)

    def _may_be_asked(self, failed: Failed, left_alone: frozenset[int]) -> bool:
        return failed.suspicion.of_a_row and self._speaks(failed, left_alone) and self._has_time()

    def _speaks(self, failed: Failed, left_alone: frozenset[int]) -> bool:
        """Whether others tell that it is this row that failed alone, and not its topic."""
        return self._has_control(failed) or failed.rows[0][0].id in left_alone

    async def _convict_all(self, twice: Sequence[Failed]) -> None:
        """Let rows pay that failed alone, and alone again. Of several, one more control tells them from an outage."""
        if len(twice) > 1 and not all(map(self._has_control, twice)) and self._outage is None:
            await self._take_control()
        for number, again in enumerate(twice):
            # Without any other row that could be asked, one of them is convicted; the others have their turn later.
            if self._has_control(again) or (number == 0 and (len(twice) == 1 or self._refused is None)):
                self._convict(again)
            else:
                self._outage = self._outage or self._refused
                self._released.append(again)

    def _convict(self, again: Failed) -> None:
        found = verdict(again.suspicion, alone=True, control=True, keyed=again.keyed)
        if found is Verdict.TOPIC_OUTAGE:
            self._outage = self._outage or again.error
            self._released.append(again)
        else:
            self._guilty.append(Guilty(again.rows[0][0], again.error, found))

    def _has_control(self, failed: Failed) -> bool:
        """Whether the topic took something that was sent after the request."""
        return self._last_taken > failed.sent

    def _has_time(self, requests: int = 1) -> bool:
        return self.deadline - self.monotonic() >= requests * self.request_seconds

    def _delivered(self) -> Delivered:
        return Delivered(
            topic=self.topic,
            accepted=self._accepted,
            guilty=self._guilty,
            suspects=frozenset(row.id for failed in self._released for row, _ in failed.rows),
            outage=self._outage,
            controls=self._asked,
        )
