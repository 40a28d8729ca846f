"""The relay's own figures, and what it says of an outbox that is away."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from relay.kernel.observe import PassFailed, PassFinished
from relay.kernel.runner import Budget, Report
from relay.operate.stats import RelayStats, StatsRunner, Tally
from relay.outbox.events import ListenConnected, ListenLost
from relay.outbox.queue import COUNT_LIMIT, Keys, Queue
from relay.publisher.events import BatchSettled

QUEUE = Queue(
    fresh=5,
    delayed_due=2,
    scheduled=3,
    retrying=6,
    max_attempts=1,
    non_retryable=1,
    blocking=0,
    failed_last_hour=2,
    oldest_unordered_seconds=2.0,
    keys=Keys(
        due=1,
        later=1,
        behind=2,
        blocked=1,
        is_least=False,
        more_keys=False,
        oldest_due_seconds=12.34567,
        oldest_blocked_seconds=3.0,
    ),
)


class Bench:
    """A stats runner whose outbox and clock are in the test's hand."""

    def __init__(self) -> None:
        self.queue: Queue | Exception = QUEUE
        self.now = 100.0
        self.told: list[RelayStats] = []
        self.tally = Tally()
        self.runner = StatsRunner(self.look, 60.0, self.tally, self._observe, lambda: self.now)
        self.hold = asyncio.Event()
        self.hold.set()

    async def look(self) -> Queue:
        """Answer, or raise, what the test wants."""
        await self.hold.wait()
        if isinstance(self.queue, Exception):
            raise self.queue
        return self.queue

    async def run_once(self, stopping: asyncio.Event | None = None) -> Report:
        """One pass."""
        return await self.runner.run_once(Budget(200.0, lambda: self.now, stopping or asyncio.Event()))

    def _observe(self, event: object) -> None:
        assert isinstance(event, RelayStats)
        self.told.append(event)


@pytest.fixture
def bench() -> Bench:
    """A runner that has told nothing yet."""
    return Bench()


def batch(published: int, retried: int = 0, failed: int = 0) -> BatchSettled:
    """A batch as the publisher tells of it."""
    claimed = published + retried + failed
    return BatchSettled(
        claimed=claimed, published=published, retried=retried, failed=failed, size_bytes=1, seconds=0.01
    )


async def test_figures_are_those_since_the_line_before(bench: Bench) -> None:
    """Passes that found nothing do not make the others look quick; other runners' passes are theirs."""
    for event in (
        batch(90, retried=8, failed=2),
        batch(100),
        PassFinished("publish", Report(processed=200), 0.3),
        PassFinished("publish", Report(), 0.001),
        PassFinished("retention", Report(processed=9), 9.0),
        PassFailed("publish", OSError(), 0.1),
        PassFailed("retention", OSError(), 9.0),
    ):
        bench.tally(event)
    bench.now += 10

    await bench.run_once()
    bench.now += 60
    await bench.run_once()

    first, second = bench.told
    assert (first.claimed, first.published, first.retried, first.rows_failed, first.batches) == (200, 190, 8, 2, 2)
    assert (first.seconds, first.published_per_second, first.failure_rate) == (10, 19.0, 0.05)
    assert (first.passes, first.passes_failed, first.ms_per_pass) == (1, 1, 200.0)
    assert (second.seconds, second.published, second.passes, second.failure_rate, second.ms_per_pass) == (
        60,
        0,
        0,
        0,
        0,
    )


async def test_the_queue_is_told_as_it_is(bench: Bench) -> None:
    """A sum of counts that ended at their limit says no more than each of them."""
    bench.tally(batch(1))
    await bench.run_once()
    bench.queue = QUEUE._replace(fresh=COUNT_LIMIT)
    await bench.run_once()

    first, second = bench.told
    assert (first.due, first.oldest_due_seconds, first.scheduled, first.retrying, first.failed) == (8, 12.346, 3, 6, 2)
    assert (first.ordered, first.blocked_keys, first.behind_blocked) == (4, 1, 2)
    assert first.error is None
    assert second.due == second.count_limit == COUNT_LIMIT


@pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), OSError("gone")])
async def test_an_outbox_that_is_away_is_told_and_fails_nothing(bench: Bench, error: Exception) -> None:
    """The process still says what it did."""
    bench.tally(batch(7))
    bench.queue = error

    assert await bench.run_once() == Report()

    (told,) = bench.told
    assert (told.due, told.oldest_due_seconds, told.scheduled, told.retrying, told.failed) == (None,) * 5
    assert told.error
    assert "gone" in told.error
    assert told.published == 7


@pytest.mark.parametrize("proof", [batch(1), PassFinished("publish", Report(), 0.1)])
async def test_the_first_look_waits_until_the_publisher_works(bench: Bench, proof: object) -> None:
    """What keeps a start from working is the publisher's to say; then the loop is woken, once."""
    woken: list[bool] = []
    wake: Callable[[], None] = lambda: woken.append(True)  # noqa: E731 -- a listener of one line
    bench.tally.awake = wake
    await bench.run_once()
    assert bench.told == []

    bench.tally(PassFailed("publish", OSError(), 0.1))
    assert woken == []
    bench.tally(proof)
    bench.tally(proof)
    assert woken == [True]
    await bench.run_once()
    assert len(bench.told) == 1


async def test_whether_it_is_told_of_new_events_is_told(bench: Bench) -> None:
    """Nothing is said of it before the first attempt has ended, which is never where it is not to be told."""
    bench.tally(batch(1))
    await bench.run_once()
    bench.tally(ListenConnected("db"))
    await bench.run_once()
    bench.tally(ListenLost(OSError("gone"), 0.5))
    await bench.run_once()

    assert [told.listen_connected for told in bench.told] == [None, True, False]


async def test_a_publisher_that_never_works_is_told_of_after_an_interval(bench: Bench) -> None:
    """A worker that says nothing looks dead."""
    await bench.run_once()
    await bench.run_once()
    assert len(bench.told) == 1


async def test_a_look_that_hangs_does_not_hold_up_the_end(bench: Bench) -> None:
    """It is cancelled, and nothing is told."""
    bench.tally(batch(1))
    bench.hold.clear()
    stopping = asyncio.Event()

    passing = asyncio.create_task(bench.run_once(stopping))
    await asyncio.sleep(0)
    stopping.set()

    assert await passing == Report()
    assert bench.told == []


async def test_a_database_that_does_not_answer_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, whatever the connection thinks."""
    monkeypatch.setattr("relay.operate.stats.LOOK_SECONDS", 0.01)
    bench.tally(batch(1))
    bench.hold.clear()

    await bench.run_once()

    assert bench.told[0].error == "the database did not answer within 0.01 s"


def test_the_runner_has_its_pace(bench: Bench) -> None:
    """The same, whatever happened."""
    assert bench.runner.name == "stats"
    assert (bench.runner.pace.idle.first, bench.runner.pace.idle.most, bench.runner.pace.error.most) == (60.0,) * 3


def test_without_a_publisher_the_jobs_are_counted() -> None:
    """And not the looks themselves."""
    tally = Tally(publishing=False)
    tally(PassFinished("stats", Report(processed=1), 0.1))
    assert not tally.works
    tally(PassFinished("job:ingest", Report(processed=1), 0.1))
    tally(PassFailed("job:digest", OSError(), 0.1))
    assert tally.works
    counts = tally.take()
    assert (counts.passes, counts.passes_failed) == (1, 1)
