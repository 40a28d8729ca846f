"""The pace of a loop, and what may cut it short."""

import asyncio
from pathlib import Path

import pytest

from relay.cli.runners import pace, publish_policy
from relay.errors import ConfigurationError
from relay.kernel.backoff import Delay
from relay.kernel.loop import Loop
from relay.kernel.runner import Budget, Next, Pace, Report
from relay.settings import load
from tests.unit.kernel.fakes import FakeClock, FakeRunner, forever, in_fake_time, lasting, loop_of, pauses, worker_of

AGAIN = Report(processed=1, next=Next.AGAIN)
IDLE = Report()
WORKED = Report(processed=1)
BACK_OFF = Report(errors=1, next=Next.BACK_OFF)
PUBLISH = Pace(0, Delay(0.5, 0.5, 0.25), Delay(0.5, 10, 0.25))
BOOM = RuntimeError("boom")


def whole(seconds: float) -> float:
    """All the jitter there is."""
    return seconds


@in_fake_time
async def test_the_first_pass_begins_at_once() -> None:
    """No delay before anything is known."""
    runner = FakeRunner(IDLE)
    loop, stopping = loop_of(runner), asyncio.Event()
    began = asyncio.get_running_loop().time()
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(0.1)
    stopping.set()
    loop.wake.set()
    await running

    assert runner.began == [began]


@in_fake_time
async def test_work_that_is_left_is_taken_up_after_the_busy_delay() -> None:
    """A quarter of a second, without jitter."""
    assert await pauses(FakeRunner(AGAIN), 3, whole) == [0.25, 0.25, 0.25]


@in_fake_time
async def test_a_publisher_with_work_left_goes_on_at_once() -> None:
    """A full batch is followed by the next without a pause."""
    assert await pauses(FakeRunner(AGAIN, AGAIN, AGAIN, IDLE, pace=PUBLISH), 4) == [0, 0, 0, 0.5]


@in_fake_time
async def test_an_idle_loop_looks_less_and_less_often() -> None:
    """One second doubling to thirty."""
    assert await pauses(FakeRunner(IDLE), 7) == [1, 2, 4, 8, 16, 30, 30]


@in_fake_time
async def test_idle_pauses_carry_jitter() -> None:
    """Up to half a second each."""
    assert await pauses(FakeRunner(IDLE), 3, whole) == [1.5, 2.5, 4.5]


@pytest.mark.parametrize("work", [AGAIN, WORKED, BACK_OFF, BOOM], ids=["again", "idle after work", "back off", "error"])
@in_fake_time
async def test_work_resets_the_idle_delay(work: Report | BaseException) -> None:
    """Whoever has just had something to do looks again soon, also when that was all there was."""
    taken = await pauses(FakeRunner(IDLE, IDLE, IDLE, work, IDLE), 5)

    assert taken[:3] == [1, 2, 4]
    assert taken[-1] == (2 if work is WORKED else 1)


@in_fake_time
async def test_an_idle_publisher_polls_twice_a_second() -> None:
    """Half a second that does not grow, plus up to a quarter."""
    assert await pauses(FakeRunner(IDLE, pace=PUBLISH), 3) == [0.5, 0.5, 0.5]
    assert await pauses(FakeRunner(IDLE, pace=PUBLISH), 3, whole) == [0.75, 0.75, 0.75]


@pytest.mark.parametrize("failure", [BACK_OFF, BOOM], ids=["reported", "raised"])
@in_fake_time
async def test_a_failure_is_given_time(failure: Report | BaseException) -> None:
    """Thirty seconds plus up to two, reported or raised; a publisher begins at half a second, doubling to ten."""
    assert await pauses(FakeRunner(failure), 3) == [30, 30, 30]
    assert await pauses(FakeRunner(failure), 2, whole) == [32, 32]
    assert await pauses(FakeRunner(failure, pace=PUBLISH), 7) == [0.5, 1, 2, 4, 8, 10, 10]
    assert await pauses(FakeRunner(failure, pace=PUBLISH), 2, whole) == [0.75, 1.25]


@pytest.mark.parametrize("success", [IDLE, WORKED, AGAIN], ids=["idle", "worked", "again"])
@in_fake_time
async def test_a_success_resets_the_error_delay(success: Report) -> None:
    """The next failure is the first of its row."""
    taken = await pauses(FakeRunner(BOOM, BOOM, BOOM, success, BOOM, pace=PUBLISH), 5)

    assert taken[:3] == [0.5, 1, 2]
    assert taken[4] == 0.5


@in_fake_time
async def test_a_long_pass_does_not_shorten_the_pause() -> None:
    """The pause counts from the end of a pass: a slow runner does not run without rest."""
    assert await pauses(FakeRunner(lasting(50)), 2) == [51, 52]


@pytest.mark.parametrize("first", [IDLE, AGAIN, BACK_OFF, BOOM], ids=["idle", "busy", "back off", "error"])
@in_fake_time
async def test_a_wake_up_cuts_any_pause_short(first: Report | BaseException) -> None:
    """The next pass begins when it comes."""
    runner = FakeRunner(first, IDLE)
    loop, stopping = loop_of(runner), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(0.1)
    loop.wake.set()
    await asyncio.sleep(0.1)
    stopping.set()
    loop.wake.set()
    await running

    assert [round(time - runner.began[0], 6) for time in runner.began] == [0, 0.1]


@in_fake_time
async def test_a_wake_up_during_a_pass_is_not_lost() -> None:
    """What it is about may have come after the pass had looked."""
    runner = FakeRunner(lasting(5), IDLE)
    loop, stopping = loop_of(runner), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(3)
    loop.wake.set()
    await asyncio.sleep(2.5)
    stopping.set()
    loop.wake.set()
    await running

    assert [time - runner.began[0] for time in runner.began] == [0, 5]


@pytest.mark.parametrize("steps", range(25))
@in_fake_time
async def test_a_wake_up_is_lost_at_no_step_between_two_passes(steps: int) -> None:
    """Wherever the loop is, after the wake-up a pass begins that had not begun before it."""

    async def hesitate(_: Budget) -> Report:
        for _step in range(4):
            await asyncio.sleep(0)
        return IDLE

    runner = FakeRunner(hesitate)
    loop, stopping = loop_of(runner), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    for _ in range(steps):
        await asyncio.sleep(0)
    before = len(runner.began)
    loop.wake.set()
    await asyncio.sleep(0.5)  # in fake time, and before the first idle delay is over
    after = len(runner.began)
    stopping.set()
    loop.wake.set()
    await running

    assert after > before


@in_fake_time
async def test_many_wake_ups_are_one() -> None:
    """A hundred notifications during a pass ask for one more pass."""
    runner = FakeRunner(lasting(5), IDLE)
    loop, stopping = loop_of(runner), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    for _ in range(100):
        await asyncio.sleep(0.01)
        loop.wake.set()
    await asyncio.sleep(5)
    stopping.set()
    loop.wake.set()
    await running

    assert len(runner.began) == 2


@pytest.mark.parametrize("first", [IDLE, AGAIN, BACK_OFF, BOOM], ids=["idle", "busy", "back off", "error"])
@in_fake_time
async def test_stopping_cuts_any_pause_short(first: Report | BaseException) -> None:
    """The loop ends at once and begins no further pass."""
    runner = FakeRunner(first)
    loop, stopping = loop_of(runner), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(0.1)
    stopping.set()
    loop.wake.set()
    stopped = asyncio.get_running_loop().time()
    await running

    assert asyncio.get_running_loop().time() == stopped
    assert len(runner.began) == 1


async def test_a_runner_that_never_waits_lets_the_others_run() -> None:
    """With work left and no busy delay the event loop still turns: timers, signals and other loops are served."""
    stopping, others, hot = asyncio.Event(), asyncio.Event(), 10_000

    async def one(_: Budget) -> Report:
        if len(runner.began) >= hot:
            stopping.set()  # in vain: nobody else was ever served
        return AGAIN

    runner = FakeRunner(one, pace=PUBLISH)
    loop = loop_of(runner)

    async def other() -> None:
        await asyncio.sleep(0.001)
        others.set()
        stopping.set()

    await asyncio.gather(loop.run(stopping), other())

    assert others.is_set()
    assert len(runner.began) < hot


@in_fake_time
async def test_a_runner_that_wakes_itself_in_every_pass_lets_the_others_run() -> None:
    """A wake-up that is there already skips the pause, not the turn of the others."""
    stopping, turns = asyncio.Event(), 0

    async def one(_: Budget) -> Report:
        loop.wake.set()
        if len(runner.began) >= 100:
            stopping.set()
        return IDLE

    runner = FakeRunner(one)
    loop = loop_of(runner)
    running = asyncio.create_task(loop.run(stopping))
    while not running.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns >= 100


@in_fake_time
async def test_a_loop_whose_runner_is_busy_elsewhere_waits() -> None:
    """A tick that shares the worker keeps it; the loop counts a skipped pass, pauses and tries again."""
    runner = FakeRunner(lasting(1.5, WORKED), WORKED)
    loop, stopping = loop_of(runner), asyncio.Event()
    elsewhere = asyncio.create_task(loop.worker.run_once(stopping, 60))
    await asyncio.sleep(0.1)
    running = asyncio.create_task(loop.run(stopping))
    await elsewhere
    assert len(runner.began) == 1
    await asyncio.sleep(2)
    stopping.set()
    loop.wake.set()
    await running

    assert [round(time - runner.began[0], 6) for time in runner.began][1] == 3.1


@in_fake_time
async def test_a_wrong_configuration_ends_the_loop_while_nothing_has_worked_yet() -> None:
    """A database that is away is waited for; one that is there and has no outbox is not."""
    wrong = ConfigurationError("no outbox")
    runner = FakeRunner(OSError("away"), OSError("away"), wrong)

    with pytest.raises(ConfigurationError, match="no outbox"):
        await loop_of(runner).run(asyncio.Event())

    assert [time - runner.began[0] for time in runner.began] == [0, 30, 60]


@in_fake_time
async def test_a_configuration_that_turns_wrong_later_is_waited_for() -> None:
    """What has worked may work again: passwords are rotated and schemas migrated under a running relay."""
    assert await pauses(FakeRunner(IDLE, ConfigurationError("newer"), IDLE), 3) == [1, 30, 1]


@in_fake_time
async def test_a_pass_is_given_the_loops_time() -> None:
    """The budget of each pass, beyond which it is cancelled after the grace."""
    runner = FakeRunner(forever, IDLE)
    loop, stopping = loop_of(runner, pass_seconds=60), asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(110.5)
    stopping.set()
    loop.wake.set()
    await running

    assert [time - runner.began[0] for time in runner.began] == [0, 60 + 20 + 30]


def test_every_runner_is_paced_by_these_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The defaults that the reference documentation names."""
    assert Pace() == Pace(0.25, Delay(first=1, most=30, jitter=0.5), Delay(first=30, most=30, jitter=2))
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    for name in ("RELAY_POLL_MS", "RELAY_POLL_JITTER_MS", "RELAY_OUTAGE_MAX_MS"):
        monkeypatch.delenv(name, raising=False)
    assert publish_policy(load()).pace == PUBLISH
    assert pace(load()) == Pace()


class RestInHand:
    """Rests for two seconds, and writes down what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        self.closed = 0

    async def rest(self, wake: asyncio.Event, seconds: float, *, worked: int) -> None:
        """Rest."""
        self.asked.append((seconds, worked))
        await FakeClock().wait(wake, 2.0)

    def after_failure(self, seconds: float) -> float:
        """No more than half a minute."""
        return min(seconds, 25.0)

    async def close(self) -> None:
        """Count the closings."""
        self.closed += 1


@in_fake_time
async def test_a_loop_with_nothing_to_do_rests_as_it_was_told() -> None:
    """With its own pause as the measure, and how much was done; other pauses stay the clock's."""
    rest, stopping = RestInHand(), asyncio.Event()
    runner = FakeRunner(Report(updated=7), AGAIN, BOOM, IDLE, pace=PUBLISH)
    loop = Loop(worker_of(runner), FakeClock(), 60, lambda _: 0.0, rest=rest)
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(3)
    stopping.set()
    loop.wake.set()
    await running

    assert [round(time - runner.began[0], 6) for time in runner.began] == [0, 2, 2, 2.5]
    assert rest.asked == [(0.5, 7), (0.5, 0)]
    assert rest.closed == 1


@in_fake_time
async def test_a_rest_is_closed_however_the_loop_ends() -> None:
    """It may hold a session."""
    for step in (forever, IDLE, ConfigurationError("wrong")):
        rest = RestInHand()
        loop = Loop(worker_of(FakeRunner(step)), FakeClock(), 60, final=(ConfigurationError,), rest=rest)
        running = asyncio.create_task(loop.run(asyncio.Event()))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait({running})
        assert rest.closed == 1
        assert running.cancelled() or isinstance(running.exception(), ConfigurationError)


@in_fake_time
async def test_a_rest_says_how_long_a_failure_is_waited_for() -> None:
    """The pace asks for half a minute; what is due before that would be slept through."""
    rest, stopping = RestInHand(), asyncio.Event()
    runner = FakeRunner(BOOM, BOOM, IDLE)
    loop = Loop(worker_of(runner), FakeClock(), 60, lambda _: 0.0, rest=rest)
    running = asyncio.create_task(loop.run(stopping))
    await asyncio.sleep(51)
    stopping.set()
    loop.wake.set()
    await running

    assert [round(time - runner.began[0], 6) for time in runner.began] == [0, 25, 50]
