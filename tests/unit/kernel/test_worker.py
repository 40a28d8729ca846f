"""One pass of one runner, whatever the runner does."""

import asyncio

import pytest

from relay.kernel.observe import CloseFailed, PassFailed, PassFinished, PassSkipped
from relay.kernel.runner import Budget, Next, Report
from relay.kernel.worker import Worker, close_all
from tests.unit.kernel.fakes import FakeClock, FakeRunner, deaf, forever, in_fake_time, lasting, worker_of


@in_fake_time
async def test_a_pass_ends_with_its_report() -> None:
    """The outcome and the event carry the report and how long it took."""
    report = Report(processed=3, updated=2, skipped=1, errors=1, next=Next.AGAIN)
    heard: list[object] = []

    outcome = await worker_of(FakeRunner(lasting(1.5, report)), heard.append).run_once(asyncio.Event(), 60)

    assert (outcome.report, outcome.seconds, outcome.error) == (report, 1.5, None)
    assert heard == [PassFinished("work", report, 1.5)]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom"),
        TimeoutError("a timeout of its own"),
        asyncio.CancelledError(),
        SystemExit(0),
        ExceptionGroup("several", [OSError(), ValueError()]),
        BaseExceptionGroup("several", [asyncio.CancelledError(), ValueError()]),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
@in_fake_time
async def test_whatever_a_runner_raises_is_its_outcome(error: BaseException) -> None:
    """It is observed and returned, and the next pass finds the runner free; no runner ends the process."""
    heard: list[object] = []
    runner = FakeRunner(error, Report(processed=1))
    worker = worker_of(runner, heard.append)

    outcome = await worker.run_once(asyncio.Event(), 60)

    assert outcome.error is error
    assert outcome.report.errors == 1
    assert heard == [PassFailed("work", error, 0.0)]
    assert (await worker.run_once(asyncio.Event(), 60)).report.processed == 1


@in_fake_time
async def test_a_cancellation_from_outside_is_passed_on() -> None:
    """It is the shutdown's, not the runner's failure; the runner is free afterwards."""
    heard: list[object] = []
    worker = worker_of(FakeRunner(forever, Report(processed=1)), heard.append)
    running = asyncio.create_task(worker.run_once(asyncio.Event(), 60))
    await asyncio.sleep(1)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == []
    assert (await worker.run_once(asyncio.Event(), 60)).report.processed == 1


def test_an_interrupt_is_passed_on() -> None:
    """Python means to end the process; the busy mark does not outlive even that."""
    worker = worker_of(FakeRunner(KeyboardInterrupt(), Report(processed=1)))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(worker.run_once(asyncio.Event(), 60))

    assert asyncio.run(worker.run_once(asyncio.Event(), 60)).report.processed == 1


@in_fake_time
async def test_a_second_pass_at_once_is_skipped_and_counted() -> None:
    """Two callers, one runner: the second is told so at once, and the first is not disturbed."""
    heard: list[object] = []
    runner = FakeRunner(lasting(5, Report(processed=7)))
    worker = worker_of(runner, heard.append)
    first = asyncio.create_task(worker.run_once(asyncio.Event(), 60))
    await asyncio.sleep(1)

    second = await worker.run_once(asyncio.Event(), 60)

    assert (second.report, second.seconds) == (Report(skipped=1), 0.0)
    assert heard == [PassSkipped("work")]
    assert (await first).report.processed == 7
    assert len(runner.began) == 1


@in_fake_time
async def test_a_pass_far_beyond_its_budget_is_cancelled() -> None:
    """Sixty seconds and the grace; the error says both, and where the runner was."""
    heard: list[object] = []
    worker = worker_of(FakeRunner(forever, Report(processed=1)), heard.append, grace=20)

    outcome = await worker.run_once(asyncio.Event(), 60)

    assert isinstance(outcome.error, TimeoutError)
    assert str(outcome.error) == "cancelled 20 s after its budget of 60 s was spent"
    assert outcome.error.__cause__ is not None
    assert outcome.seconds == 80
    assert heard == [PassFailed("work", outcome.error, 80)]
    assert (await worker.run_once(asyncio.Event(), 60)).report.processed == 1


@in_fake_time
async def test_a_pass_that_ends_within_the_grace_is_a_good_one() -> None:
    """The last unit of work may begin as the budget ends."""
    outcome = await worker_of(FakeRunner(lasting(79, Report(processed=1))), grace=20).run_once(asyncio.Event(), 60)

    assert (outcome.error, outcome.report.processed) == (None, 1)


@in_fake_time
async def test_a_runner_that_fails_at_its_hard_timeout_is_known_to_have_timed_out() -> None:
    """What its clean-up raised is the cause, not the headline."""

    async def stumble(budget: Budget) -> Report:
        try:
            return await forever(budget)
        finally:
            raise OSError("rollback failed")

    outcome = await worker_of(FakeRunner(stumble), grace=20).run_once(asyncio.Event(), 60)

    assert isinstance(outcome.error, TimeoutError)
    assert isinstance(outcome.error.__cause__, OSError)


@in_fake_time
async def test_a_runner_that_ignores_its_cancellation_stays_busy() -> None:
    """As long as it runs no second pass begins beside it."""
    runner = FakeRunner(deaf, Report(processed=1))
    worker = worker_of(runner)
    first = asyncio.create_task(worker.run_once(asyncio.Event(), 60))
    await asyncio.sleep(600)

    assert (await worker.run_once(asyncio.Event(), 60)).report.skipped == 1
    assert not await worker.close(2)
    assert runner.closed == 0

    await first
    assert (await worker.run_once(asyncio.Event(), 60)).report.processed == 1


@in_fake_time
async def test_a_budget_ends_by_time_by_items_and_by_the_wish_to_stop() -> None:
    """A runner that asks between two units ends by any of the three."""
    clock, stopping = FakeClock(), asyncio.Event()
    budget = Budget(clock.monotonic() + 10, clock.monotonic, stopping, items=5)

    assert not budget.spent(4)
    assert budget.spent(5)
    stopping.set()
    assert budget.spent(0)
    stopping.clear()
    await asyncio.sleep(9.9)
    assert not budget.spent(0)
    await asyncio.sleep(0.1)
    assert budget.spent(0)


@in_fake_time
async def test_a_pass_is_given_its_time_and_its_items() -> None:
    """The caller's limits reach the runner."""
    given: list[Budget] = []

    async def look(budget: Budget) -> Report:
        given.append(budget)
        return Report()

    stopping = asyncio.Event()
    await Worker(FakeRunner(look), FakeClock(), lambda _: None, items=200).run_once(stopping, 60)

    (budget,) = given
    assert budget.deadline - budget.monotonic() == 60
    assert budget.items == 200
    assert budget.stopping is stopping


class Unclosable(FakeRunner):
    """A runner whose close raises, or waits."""

    def __init__(self, end: BaseException | float) -> None:
        super().__init__(Report())
        self.end = end

    async def close(self) -> None:
        """Do as told."""
        if isinstance(self.end, BaseException):
            raise self.end
        await asyncio.sleep(self.end)


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()], ids=lambda error: type(error).__name__)
@in_fake_time
async def test_a_close_that_raises_is_observed(error: BaseException) -> None:
    """Nothing is lost by it, so nothing else may suffer from it."""
    heard: list[object] = []

    assert await worker_of(Unclosable(error), heard.append).close(2)

    (event,) = heard
    assert isinstance(event, CloseFailed)
    assert type(event.error) is type(error)


@in_fake_time
async def test_a_close_that_hangs_is_left_behind() -> None:
    """After its time the caller goes on."""
    heard: list[object] = []
    clock = FakeClock()
    began = clock.monotonic()

    assert not await worker_of(Unclosable(3_600), heard.append).close(2)

    assert clock.monotonic() - began == 2
    (event,) = heard
    assert isinstance(event, CloseFailed)
    assert str(event.error) == "not closed within 2 s"


class _SlowToCloseRunner(FakeRunner):
    async def close(self) -> None:
        await asyncio.sleep(1.5)
        await super().close()


@in_fake_time
async def test_all_are_closed_within_one_time() -> None:
    """The slow ones share it; one that closes at once is closed even after it was spent."""
    clock, heard = FakeClock(), list[object]()
    runners = [_SlowToCloseRunner(name="a"), _SlowToCloseRunner(name="b"), FakeRunner(name="c")]
    workers = [worker_of(runner, heard.append) for runner in runners]
    began = clock.monotonic()

    assert await close_all(workers, clock, 2) == [workers[1]]

    assert clock.monotonic() - began == 2
    assert [runner.closed for runner in runners] == [1, 0, 1]
    assert [(event.runner, str(event.error)) for event in heard if isinstance(event, CloseFailed)] == [
        ("b", "not closed within 0.5 s")
    ]


@in_fake_time
async def test_a_worker_with_a_bound_of_its_own_keeps_to_it() -> None:
    """Whoever asks for a pass may have another in mind; what is left of a whole is a bound all the same."""
    given: list[float] = []

    async def use(budget: Budget) -> Report:
        given.append(budget.deadline - budget.monotonic())
        return Report()

    worker = Worker(FakeRunner(use), FakeClock(), lambda _: None, seconds=3_600)
    await worker.run_once(asyncio.Event(), 60)
    await worker.run_once(asyncio.Event(), 60, 100)
    await worker_of(FakeRunner(use)).run_once(asyncio.Event(), 60, 40)

    assert given == [3_600, 100, 40]
