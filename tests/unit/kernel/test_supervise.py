"""Loops beside each other, and how they end."""

import asyncio

import pytest

from relay.errors import ConfigurationError
from relay.kernel.loop import Loop
from relay.kernel.observe import CloseFailed, LoopDied, Observe, PassFinished, ShutdownBegan, ShutdownEnded
from relay.kernel.runner import Budget, Next, Report
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import CANCEL_SECONDS, CLOSE_SECONDS, supervise
from tests.unit.kernel.fakes import FakeClock, FakeRunner, Step, deaf, forever, in_fake_time, lasting, loop_of

SOFT = 25.0


class Journal:
    """What happened, in its order, with the time."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []
        self.events: list[object] = []
        self._began = asyncio.get_running_loop().time()

    def __call__(self, event: object) -> None:
        """Listen."""
        self.events.append(event)
        self.write(type(event).__name__)

    def write(self, line: str) -> None:
        """Add a line."""
        self.lines.append((round(asyncio.get_running_loop().time() - self._began, 6), line))

    def since(self, line: str) -> list[tuple[float, str]]:
        """The lines from this one on."""
        return self.lines[[text for _, text in self.lines].index(line) :]


class Journaled(FakeRunner):
    """A runner that writes its closing into the journal."""

    journal: Journal

    async def close(self) -> None:
        """Write."""
        self.journal.write(f"{self.name} closes")


class Unclosable(FakeRunner):
    """A runner whose close raises."""

    async def close(self) -> None:
        """Raise."""
        raise OSError("gone")


class Unending(FakeRunner):
    """A runner whose close never ends."""

    async def close(self) -> None:
        """Wait."""
        await asyncio.Event().wait()


async def stopped_after(
    seconds: float, *runners: FakeRunner, journal: Observe = lambda _: None, soft: float = SOFT
) -> tuple[str, ...]:
    """Supervise loops around the runners, and ask for the end after a while."""
    shutdown = Shutdown()
    asyncio.get_running_loop().call_later(seconds, shutdown.request, "SIGTERM")
    return await supervise([loop_of(runner, journal) for runner in runners], shutdown, FakeClock(), soft, journal)


def journaled(journal: Journal, name: str, *steps: Step) -> Journaled:
    """A runner that writes into the journal."""
    runner = Journaled(*steps, name=name)
    runner.journal = journal
    return runner


@pytest.mark.parametrize("other", [forever, RuntimeError("boom"), lasting(1_000)], ids=["stuck", "failing", "slow"])
@in_fake_time
async def test_a_runner_never_waits_for_another(other: Report) -> None:
    """Each keeps its own pace beside one that hangs, fails or takes its time."""
    steady = FakeRunner(Report(processed=1, next=Next.AGAIN), name="steady")

    await stopped_after(10.1, FakeRunner(other, name="other"), steady)

    assert [round(time - steady.began[0], 6) for time in steady.began] == [n * 0.25 for n in range(41)]


@in_fake_time
async def test_the_end_comes_in_its_order() -> None:
    """No new pass; what is in flight ends; then runners close in the order they were given; then the last event."""
    journal = Journal()
    busy = journaled(journal, "busy", lasting(15, Report(processed=1, next=Next.AGAIN)))
    idle = journaled(journal, "idle", Report())

    abandoned = await stopped_after(10, busy, idle, journal=journal)

    assert abandoned == ()
    assert journal.since("ShutdownBegan") == [
        (10, "ShutdownBegan"),
        (15, "PassFinished"),
        (15, "busy closes"),
        (15, "idle closes"),
        (15, "ShutdownEnded"),
    ]
    assert ShutdownBegan("SIGTERM", SOFT) in journal.events
    assert journal.events[-1] == ShutdownEnded((), 5)
    assert len(busy.began) == 1


@in_fake_time
async def test_a_pass_that_outlives_the_soft_timeout_is_cancelled_and_named() -> None:
    """It cleans up before anything is closed; the others are not named."""
    journal = Journal()

    async def stubborn(budget: Budget) -> Report:
        try:
            return await forever(budget)
        finally:
            await asyncio.sleep(1)
            journal.write("rolled back")

    slow, idle = journaled(journal, "slow", stubborn), journaled(journal, "idle", Report())

    abandoned = await stopped_after(10, idle, slow, journal=journal)

    assert abandoned == ("slow",)
    assert journal.since("ShutdownBegan") == [
        (10, "ShutdownBegan"),
        (36, "rolled back"),
        (36, "idle closes"),
        (36, "slow closes"),
        (36, "ShutdownEnded"),
    ]
    assert journal.events[-1] == ShutdownEnded(("slow",), 26)


@in_fake_time
async def test_a_pass_that_ignores_its_cancellation_does_not_hold_up_the_end() -> None:
    """It is named and not closed, since its pass is under way; the others are closed all the same."""
    journal = Journal()
    stuck, idle = journaled(journal, "stuck", deaf), journaled(journal, "idle", Report())

    abandoned = await stopped_after(10, stuck, idle, journal=journal)

    assert abandoned == ("stuck",)
    end = 10 + SOFT + CANCEL_SECONDS
    assert journal.since("ShutdownBegan")[1:] == [(end, "idle closes"), (end, "ShutdownEnded")]


@in_fake_time
async def test_a_cancelled_pass_that_raises_something_else_is_still_named() -> None:
    """A rollback that fails is the runner's affair; the end goes on."""

    async def stumble(budget: Budget) -> Report:
        try:
            return await forever(budget)
        finally:
            raise OSError("rollback failed")

    assert await stopped_after(10, FakeRunner(stumble, name="slow")) == ("slow",)


@in_fake_time
async def test_a_close_that_raises_does_not_keep_the_others_open() -> None:
    """It is observed, nothing was abandoned, and the last event still comes."""
    journal = Journal()
    good = FakeRunner(Report(), name="good")

    abandoned = await stopped_after(1, Unclosable(Report(), name="bad"), good, journal=journal)

    assert abandoned == ()
    assert good.closed == 1
    (failed,) = [event for event in journal.events if isinstance(event, CloseFailed)]
    assert (failed.runner, str(failed.error)) == ("bad", "gone")
    assert isinstance(journal.events[-1], ShutdownEnded)


@in_fake_time
async def test_closings_that_hang_share_one_limit() -> None:
    """They are named; together they take no longer than one may, and a good one among them is closed."""
    journal = Journal()
    good = FakeRunner(Report(), name="good")

    abandoned = await stopped_after(
        1, Unending(Report(), name="one"), Unending(Report(), name="two"), good, journal=journal
    )

    assert abandoned == ("one", "two")
    assert good.closed == 1
    assert journal.lines[-1] == (1 + CLOSE_SECONDS, "ShutdownEnded")


@in_fake_time
async def test_the_whole_end_fits_into_what_heroku_grants() -> None:
    """Thirty seconds, at the default soft timeout, with everything going wrong."""
    journal = Journal()

    await stopped_after(10, FakeRunner(deaf, name="deaf"), Unending(Report(), name="open"), journal=journal)

    assert journal.lines[-1][0] - 10 <= 29


@in_fake_time
async def test_without_a_soft_timeout_passes_are_cancelled_at_once() -> None:
    """Zero is a choice."""
    journal = Journal()

    assert await stopped_after(1, FakeRunner(forever, name="slow"), journal=journal, soft=0) == ("slow",)
    assert journal.lines[-1] == (1, "ShutdownEnded")


@in_fake_time
async def test_a_stop_before_the_first_pass_runs_none() -> None:
    """Asked to end while it starts, the process closes what it has built and goes."""
    runner, shutdown = FakeRunner(Report()), Shutdown()
    shutdown.request("SIGTERM")

    assert await supervise([loop_of(runner)], shutdown, FakeClock(), SOFT, lambda _: None) == ()
    assert runner.began == []
    assert runner.closed == 1


@in_fake_time
async def test_a_loop_that_dies_stops_everything_loudly() -> None:
    """It is observed at once, the others end in order, and what it died of is raised."""
    journal = Journal()
    bug = AttributeError("a fault of the kernel")
    other = journaled(journal, "other", lasting(15, Report(processed=1)))

    class Broken(Loop):
        async def run(self, stopping: asyncio.Event) -> None:
            await super().run(stopping) if stopping.is_set() else await asyncio.sleep(10)
            raise bug

    dying = Broken(loop_of(FakeRunner(Report(), name="dying")).worker, FakeClock(), 60)
    with pytest.raises(AttributeError, match="a fault of the kernel"):
        await supervise([dying, loop_of(other, journal)], Shutdown(), FakeClock(), SOFT, journal)

    assert journal.lines[:2] == [(10, "LoopDied"), (10, "ShutdownBegan")]
    assert journal.events[:2] == [LoopDied("dying", bug), ShutdownBegan("the loop of dying died", SOFT)]
    assert journal.lines[-2:] == [(15, "other closes"), (15, "ShutdownEnded")]


@in_fake_time
async def test_a_configuration_that_is_wrong_from_the_start_stops_everything() -> None:
    """The command then ends as for any other wrong configuration."""
    with pytest.raises(ConfigurationError, match="no outbox"):
        await stopped_after(3_600, FakeRunner(ConfigurationError("no outbox")), FakeRunner(Report(), name="other"))


@in_fake_time
async def test_a_loop_that_is_cancelled_from_outside_does_not_look_like_an_orderly_end() -> None:
    """A runner that cancels the task it runs in would otherwise end the relay with 0."""
    journal = Journal()

    async def cancel_itself(_: Budget) -> Report:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(1)
        raise AssertionError

    with pytest.raises(RuntimeError, match="the loop of odd was cancelled from outside"):
        await stopped_after(3_600, FakeRunner(cancel_itself, name="odd"), journal=journal)
    assert "LoopDied" in [line for _, line in journal.lines]


@in_fake_time
async def test_a_supervisor_that_is_cancelled_leaves_nothing_running() -> None:
    """Embedded in another program it ends its loops and closes their runners before it lets go."""
    journal = Journal()
    slow, idle = journaled(journal, "slow", forever), journaled(journal, "idle", Report())
    loops = [loop_of(slow, journal), loop_of(idle, journal)]
    running = asyncio.create_task(supervise(loops, Shutdown(), FakeClock(), SOFT, journal))
    await asyncio.sleep(10)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert journal.lines[-3:] == [(10, "slow closes"), (10, "idle closes"), (10, "ShutdownEnded")]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert isinstance(journal.events[-1], ShutdownEnded)
    assert journal.events[-1].seconds == 0


@in_fake_time
async def test_a_cancelled_supervisor_ends_loops_whose_runners_turn_the_cancellation_into_an_error() -> None:
    """Such a loop must not take it for a failed pass, and run another."""

    async def stumble(budget: Budget) -> Report:
        try:
            return await forever(budget)
        finally:
            raise OSError("rollback failed")

    runner, clock = FakeRunner(stumble), FakeClock()
    running = asyncio.create_task(supervise([loop_of(runner)], Shutdown(), clock, SOFT, lambda _: None))
    await asyncio.sleep(10)
    began = clock.monotonic()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert clock.monotonic() == began
    assert len(runner.began) == 1


@in_fake_time
async def test_a_runner_that_wants_to_exit_does_not_end_the_process() -> None:
    """It has failed, and is run again like any that failed."""
    journal = Journal()
    rude = FakeRunner(SystemExit(0), Report(processed=1), name="rude")

    await stopped_after(31, rude, journal=journal)

    assert [event.runner for event in journal.events if isinstance(event, PassFinished)] == ["rude"]


@in_fake_time
async def test_without_runners_it_waits_to_be_stopped() -> None:
    """Nothing to do is no error."""
    assert await stopped_after(5) == ()
