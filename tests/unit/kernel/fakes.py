"""Time that jumps, and runners that do as they are told."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec

from relay.errors import ConfigurationError
from relay.kernel.clock import SystemClock
from relay.kernel.loop import Loop
from relay.kernel.runner import Budget, Pace, Report
from relay.kernel.worker import GRACE_SECONDS, Worker

P = ParamSpec("P")
Step = Report | BaseException | Callable[[Budget], Awaitable[Report]]


class JumpingSelector(selectors.DefaultSelector):
    """Where an event loop would sleep until its next timer, it moves the time there."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; when nothing is, the time jumps."""
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("everything waits, and no timer is left to wait for")
            self.now += max(0.0, timeout)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything can run."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The seconds that have been jumped over."""
        return self._jumping.now


class FakeClock(SystemClock):
    """The production clock, reading the event loop's time."""

    def monotonic(self) -> float:
        """Seconds of the jumping loop."""
        return asyncio.get_running_loop().time()


def in_fake_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test where a day of sleep takes no time, and every run takes the same steps."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class FakeRunner:
    """Does what a test tells it, pass by pass; the last step is repeated."""

    def __init__(self, *steps: Step, name: str = "work", pace: Pace | None = None) -> None:
        self.name = name
        self.pace = pace or Pace()
        self.steps = steps
        self.began: list[float] = []
        self.closed = 0

    async def run_once(self, budget: Budget) -> Report:
        """Take the next step."""
        self.began.append(budget.monotonic())
        step = self.steps[min(len(self.began), len(self.steps)) - 1]
        if isinstance(step, Report):
            return step
        if isinstance(step, BaseException):
            raise step
        return await step(budget)

    async def close(self) -> None:
        """Count the closings."""
        self.closed += 1


def worker_of(
    runner: FakeRunner, observe: Callable[[object], None] = lambda _: None, grace: float = GRACE_SECONDS
) -> Worker:
    """A worker in fake time."""
    return Worker(runner, FakeClock(), observe, grace)


def loop_of(
    runner: FakeRunner,
    observe: Callable[[object], None] = lambda _: None,
    jitter: Callable[[float], float] = lambda _: 0.0,
    pass_seconds: float = 60,
) -> Loop:
    """A loop in fake time; without jitter, unless the test wants some."""
    return Loop(worker_of(runner, observe), FakeClock(), pass_seconds, jitter, final=(ConfigurationError,))


async def pauses(runner: FakeRunner, count: int, jitter: Callable[[float], float] = lambda _: 0.0) -> Sequence[float]:
    """Let a loop make some pauses, and tell how long each was; the steps themselves take no time."""
    stopping = asyncio.Event()
    loop = loop_of(runner, jitter=jitter)
    running = asyncio.create_task(loop.run(stopping))
    while len(runner.began) <= count:  # noqa: ASYNC110 -- in time that jumps this costs nothing
        await asyncio.sleep(0.05)
    stopping.set()
    loop.wake.set()
    await running
    return [round(later - earlier, 6) for earlier, later in zip(runner.began, runner.began[1:], strict=False)][:count]


async def forever(_: Budget) -> Report:
    """Work that never ends by itself."""
    await asyncio.Event().wait()
    raise AssertionError


def lasting(seconds: float, report: Report | None = None) -> Callable[[Budget], Awaitable[Report]]:
    """Work that takes its time."""

    async def work(_: Budget) -> Report:
        await asyncio.sleep(seconds)
        return report or Report()

    return work


async def deaf(_: Budget) -> Report:
    """Work that ignores its cancellation for an hour."""
    until = asyncio.get_running_loop().time() + 3_600
    while asyncio.get_running_loop().time() < until:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue
    return Report()
