"""One pass of each runner, in order, within a budget."""

import asyncio
import json

import pytest

from relay.kernel.observe import PassSkipped
from relay.kernel.runner import Budget, Next, Report
from relay.kernel.shutdown import Shutdown
from relay.kernel.tick import TickReport, tick
from relay.kernel.worker import Worker
from tests.unit.kernel.fakes import FakeClock, FakeRunner, forever, in_fake_time, lasting, loop_of, worker_of


async def ticked(*runners: FakeRunner, overall: float = 480, each: float = 60) -> TickReport:
    """Tick in fake time."""
    return await tick([worker_of(runner) for runner in runners], Shutdown(), FakeClock(), overall, each)


@in_fake_time
async def test_runners_take_their_turns_in_order() -> None:
    """Each once, the next when the one before has ended."""
    first, second = FakeRunner(lasting(3), name="first"), FakeRunner(lasting(4), name="second")

    report = await ticked(first, second)

    assert second.began[0] - first.began[0] == 3
    assert list(report.outcomes) == ["first", "second"]
    assert report.seconds == 7


@in_fake_time
async def test_the_report_is_json_in_this_shape() -> None:
    """What scripts read."""
    full = Report(processed=5, updated=3, skipped=1, errors=1, next=Next.AGAIN)
    report = await ticked(
        FakeRunner(lasting(1.25, full), name="publish"),
        FakeRunner(OSError("away"), name="export"),
        FakeRunner(lasting(500), name="slow"),
        FakeRunner(Report(), name="retention"),
        overall=50,
    )

    shape = {"ran": True, "processed": 0, "updated": 0, "skipped": 0, "errors": 0, "next": "idle", "duration_ms": 0}
    assert json.loads(json.dumps(report.as_json())) == {
        "duration_ms": 70_000,
        "runners": {
            "publish": {
                "ran": True,
                "processed": 5,
                "updated": 3,
                "skipped": 1,
                "errors": 1,
                "next": "again",
                "duration_ms": 1_250,
                "error": None,
            },
            "export": {**shape, "errors": 1, "error": "OSError: away"},
            "slow": {
                **shape,
                "errors": 1,
                "duration_ms": 68_750,
                "error": "TimeoutError: cancelled 20 s after its budget of 48.75 s was spent",
            },
            "retention": {"ran": False},
        },
    }


@in_fake_time
async def test_a_runner_gets_its_own_budget_or_what_is_left_of_the_whole() -> None:
    """The smaller of the two."""
    given: list[float] = []

    async def use(budget: Budget) -> Report:
        given.append(round(budget.deadline - budget.monotonic(), 6))
        await asyncio.sleep(given[-1])
        return Report()

    report = await ticked(*(FakeRunner(use, name=name) for name in "abcd"), overall=150, each=60)

    assert given == [60, 60, 30]
    assert report.outcomes["d"] is None


@in_fake_time
async def test_a_runner_that_raises_fails_the_tick_and_not_the_others() -> None:
    """The next takes its turn all the same."""
    boom = RuntimeError("boom")

    report = await ticked(FakeRunner(boom, name="bad"), FakeRunner(Report(processed=1), name="good"))

    assert report.failures == [boom]
    good = report.outcomes["good"]
    assert good
    assert good.report.processed == 1


@in_fake_time
async def test_errors_that_a_report_counts_do_not_fail_the_tick() -> None:
    """A row that failed is the row's failure."""
    report = await ticked(FakeRunner(Report(processed=2, errors=2, next=Next.BACK_OFF)))

    assert report.failures == []


@in_fake_time
async def test_a_stop_ends_the_tick_after_the_pass_under_way() -> None:
    """The pass sees it in its budget; those after it do not begin."""
    shutdown = Shutdown()

    async def work(budget: Budget) -> Report:
        units = 0
        while not budget.spent(units):
            units += 1
            await asyncio.sleep(1)
        return Report(processed=units)

    workers = [worker_of(FakeRunner(work, name=name)) for name in ("first", "second")]
    asyncio.get_running_loop().call_later(2.5, shutdown.request, "SIGTERM")

    report = await tick(workers, shutdown, FakeClock(), 480, 60)

    assert report.as_json()["runners"]["first"]["processed"] == 3
    assert report.outcomes["second"] is None
    assert report.failures == []


@in_fake_time
async def test_a_cancelled_tick_is_cancelled() -> None:
    """No outcome is made of it."""
    ticking = asyncio.create_task(ticked(FakeRunner(forever)))
    await asyncio.sleep(1)

    ticking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await ticking


@in_fake_time
async def test_a_tick_beside_a_loop_skips_the_runner_that_is_busy() -> None:
    """They share the worker: one runner never works twice at once, whoever calls."""
    heard: list[object] = []
    runner = FakeRunner(lasting(5, Report(processed=1)))
    loop, shutdown = loop_of(runner, heard.append), Shutdown()
    running = asyncio.create_task(loop.run(shutdown.stopping))
    await asyncio.sleep(1)

    report = await tick([loop.worker], shutdown, FakeClock(), 480, 60)

    shutdown.request("the end")
    loop.wake.set()
    await running
    assert report.as_json()["runners"]["work"]["skipped"] == 1
    assert PassSkipped("work") in heard
    assert len(runner.began) == 1


@in_fake_time
async def test_a_tick_without_runners_is_an_empty_report() -> None:
    """Nothing to do is no error."""
    assert (await ticked()).as_json() == {"duration_ms": 0, "runners": {}}


@in_fake_time
async def test_a_runner_with_a_bound_of_its_own_gets_no_more_than_is_left() -> None:
    """A job may take longer than other runners do, and never longer than the tick."""
    given: list[float] = []

    async def use(budget: Budget) -> Report:
        given.append(budget.deadline - budget.monotonic())
        await asyncio.sleep(100)
        return Report()

    workers = [Worker(FakeRunner(use, name=name), FakeClock(), lambda _: None, seconds=300) for name in "ab"]
    await tick(workers, Shutdown(), FakeClock(), 350, 60)

    assert given == [300, 250]
