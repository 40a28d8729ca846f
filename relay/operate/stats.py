"""`relay_stats`: what one relay did since it last told, and what waits in its outbox."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from relay.errors import RelayError
from relay.kernel.backoff import Delay
from relay.kernel.failure import sentence
from relay.kernel.observe import Observe, PassFailed, PassFinished
from relay.kernel.runner import Budget, Pace, Report
from relay.outbox.events import ListenConnected, ListenLost
from relay.outbox.queue import COUNT_LIMIT, Queue, look
from relay.publisher.events import BatchSettled

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Look = Callable[[], Awaitable[Queue]]

# A database that does not answer must not keep a process from telling how it is.
LOOK_SECONDS = 10.0
# Whose passes are told of, where it is one of the runners.
PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class RelayStats:
    """How the outbox and this process are; made every RELAY_STATS_MS.

    What is said of the outbox is None while it cannot be looked at, and `error` says why.
    """

    # The outbox, by the database's clock. A count that equals `count_limit` means so many or more.
    due: int | None  # rows that could be published now; at least so many, where over 10,000 keys are held up
    oldest_due_seconds: float | None  # how long the oldest of them could have been; 0 where there is none
    scheduled: int | None  # rows without a key that are for later, or wait for their next attempt
    ordered: int | None  # pending rows with an ordering_key: due, or waiting for a row of their key
    retrying: int | None  # pending rows with a failed attempt behind them
    failed: int | None  # failed rows that nobody has discarded
    blocked_keys: int | None  # keys that wait behind one of them
    behind_blocked: int | None  # pending rows that wait with them
    count_limit: int
    error: str | None

    # This process, since the last of these events.
    seconds: float
    claimed: int
    published: int
    retried: int  # attempts that failed, of rows that come again
    rows_failed: int  # rows that are out of the claim for good
    batches: int
    published_per_second: float
    failure_rate: float  # retried and failed, of all that was published, retried or failed: 0 to 1
    passes: int  # with work in them
    passes_failed: int
    ms_per_pass: float  # of the passes with work in them, and of those that failed
    listen_connected: bool | None = None  # whether it is told of new events; None before the first attempt has ended


@dataclass(slots=True)
class _Counts:
    claimed: int = 0
    published: int = 0
    retried: int = 0
    rows_failed: int = 0
    batches: int = 0
    passes: int = 0
    passes_failed: int = 0
    pass_seconds: float = 0.0


class Tally:
    """Listens to the publisher and counts; where there is none, `publishing` is off, to the jobs.

    Once it is known to work, `awake` is called, once.
    """

    def __init__(self, *, publishing: bool = True) -> None:
        self._publishing = publishing
        self.listening: bool | None = None  # unknown until it was tried, which is never where RELAY_NOTIFY is off
        self.awake: Callable[[], None] = lambda: None
        self.works = False
        self._counts = _Counts()

    def __call__(self, event: object) -> None:
        """Count what happened, if it is theirs."""
        counts = self._counts
        match event:
            case BatchSettled():
                counts.batches += 1
                counts.claimed += event.claimed
                counts.published += event.published
                counts.retried += event.retried
                counts.rows_failed += event.failed
                self._it_works()
            case PassFinished(runner=runner, report=report) if self._follows(runner):
                if report.processed or report.errors:
                    counts.passes += 1
                    counts.pass_seconds += event.seconds
                self._it_works()
            case ListenConnected():
                self.listening = True
            case ListenLost():
                self.listening = False
            case PassFailed(runner=runner) if self._follows(runner):
                counts.passes_failed += 1
                counts.pass_seconds += event.seconds

    def take(self) -> _Counts:
        """What was counted since the last call."""
        taken, self._counts = self._counts, _Counts()
        return taken

    def _follows(self, runner: str) -> bool:
        return runner == PUBLISH if self._publishing else runner != StatsRunner.name

    def _it_works(self) -> None:
        if not self.works:
            self.works = True
            self.awake()


def stats_pace(every_seconds: float) -> Pace:
    """How long it is from one look to the next."""
    every = Delay(every_seconds, every_seconds, 0)
    return Pace(idle=every, error=every)


def short_look(connect: Connect, schema: str) -> Look:
    """Looks over a connection that is there for the look alone: none is held in between."""

    async def once() -> Queue:
        connection = await connect()
        try:
            return await look(connection, schema)
        finally:
            await connection.close()

    return once


class StatsRunner:
    """The runner that tells how the relay is. It fails nobody: an outbox that is away is part of what it tells.

    The first look waits until the publisher works, or a job has had its turn: what keeps a start from working is said
    by them.
    """

    name = "stats"

    def __init__(
        self,
        look: Look,
        every_seconds: float,
        tally: Tally,
        observe: Observe,
        monotonic: Callable[[], float],
    ) -> None:
        self.pace = stats_pace(every_seconds)
        self._look = look
        self._tally = tally
        self._observe = observe
        self._monotonic = monotonic
        self._since = monotonic()
        self._begun = False

    async def run_once(self, budget: Budget) -> Report:
        """Look at the outbox, and tell."""
        if not (self._begun or self._tally.works):
            self._begun = True
            return Report()
        self._begun = True
        looking = asyncio.create_task(self._looked())
        stopping = asyncio.create_task(budget.stopping.wait())
        try:
            await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                self._observe(self._stats(*looking.result()))
        finally:
            # What is not done by now holds nobody up: neither the end of the process, nor the next pass.
            looking.cancel()
            stopping.cancel()
            await asyncio.wait({looking, stopping})
        return Report()

    async def close(self) -> None:
        """Nothing is held between two looks."""

    async def _looked(self) -> tuple[Queue | None, str | None]:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._look(), None
        except TimeoutError:
            return None, f"the database did not answer within {LOOK_SECONDS:g} s"
        except (psycopg.Error, RelayError, OSError) as failure:
            return None, sentence(failure)

    def _stats(self, queue: Queue | None, error: str | None) -> RelayStats:
        now = self._monotonic()
        seconds, self._since = now - self._since, now
        counts = self._tally.take()
        charged = counts.retried + counts.rows_failed
        passes = counts.passes + counts.passes_failed
        return RelayStats(
            due=queue and min(queue.due, COUNT_LIMIT),
            oldest_due_seconds=queue and round(max(0.0, queue.oldest_due_seconds), 3),
            scheduled=queue and queue.scheduled,
            ordered=queue and min(queue.ordered, COUNT_LIMIT),
            retrying=queue and queue.retrying,
            failed=queue and queue.failed,
            blocked_keys=queue and queue.keys.blocked,
            behind_blocked=queue and queue.keys.behind,
            count_limit=COUNT_LIMIT,
            error=error,
            seconds=round(seconds, 3),
            claimed=counts.claimed,
            published=counts.published,
            retried=counts.retried,
            rows_failed=counts.rows_failed,
            batches=counts.batches,
            published_per_second=round(counts.published / seconds, 1) if seconds > 0 else 0.0,
            failure_rate=round(charged / (counts.published + charged), 4) if charged else 0.0,
            passes=counts.passes,
            passes_failed=counts.passes_failed,
            ms_per_pass=round(counts.pass_seconds * 1000 / passes, 1) if passes else 0.0,
            listen_connected=self._tally.listening,
        )
