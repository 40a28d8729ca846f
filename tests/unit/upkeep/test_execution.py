"""However a job's function ends, and whatever happens beside it, there is one ending, and nothing works on."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from relay.upkeep.events import Status
from relay.upkeep.execution import DEAF_SECONDS, Ending, Execution
from tests.unit.kernel.fakes import in_fake_time

Work = Callable[[], Awaitable[None]]


async def never() -> BaseException:
    """A lock that is not lost."""
    await asyncio.Event().wait()
    raise AssertionError


async def soon() -> BaseException:
    """One that is lost after three seconds."""
    await asyncio.sleep(3)
    return OSError("reset")


async def unsure() -> BaseException:
    """One that cannot be asked for any more."""
    await asyncio.sleep(3)
    raise LookupError("what connection?")


async def parting() -> BaseException:
    """One that takes its time when it is asked about no longer."""
    try:
        return await never()
    finally:
        await asyncio.sleep(2)


async def nothing() -> None:
    """Work of no time."""


async def long() -> None:
    """Work of an hour."""
    await asyncio.sleep(3_600)


async def tidy() -> None:
    """The same, which fails as it tidies up."""
    try:
        await long()
    finally:
        raise ValueError("tidying")


async def lenient() -> None:
    """The same, which ends as if nothing had been."""
    try:
        await long()
    except asyncio.CancelledError:
        await asyncio.sleep(1)


async def deaf() -> None:
    """The same, which hears nothing for twenty seconds."""
    until = asyncio.get_running_loop().time() + 20
    while (left := until - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("work", [long, tidy, lenient], ids=lambda work: work.__name__)
@in_fake_time
async def test_what_takes_too_long_has_timed_out(work: Work) -> None:
    """However it takes its cancellation."""
    told: list[Status] = []
    ending = await Execution(work, never(), told.append).run(10)
    assert (ending.status, str(ending.error)) == (Status.TIMED_OUT, "not done within 10 s")
    assert told == []


@pytest.mark.parametrize("lost", [soon, unsure], ids=lambda lost: lost.__name__)
@in_fake_time
async def test_a_lock_that_is_lost_ends_the_work(lost: Callable[[], Coroutine[Any, Any, BaseException]]) -> None:
    """Also where it cannot be told what became of it."""
    began = asyncio.get_running_loop().time()
    ending = await Execution(long, lost(), lambda _: None).run(10)
    assert ending.status is Status.LOST
    assert isinstance(ending.error, OSError | LookupError)
    assert asyncio.get_running_loop().time() - began == 3


@in_fake_time
async def test_what_does_not_hear_is_waited_for_and_told_of_once() -> None:
    """It ends when it has ended, as what it was cancelled for, or by the loss of its lock meanwhile."""
    for lost, status in ((never, Status.TIMED_OUT), (soon, Status.LOST)):
        told: list[float] = []
        began = asyncio.get_running_loop().time()

        def tell(_: Status, told: list[float] = told) -> None:
            told.append(asyncio.get_running_loop().time())

        ending = await Execution(deaf, lost(), tell).run(1)
        assert ending.status is status
        assert told == [began + 1 + DEAF_SECONDS]
        assert asyncio.get_running_loop().time() == began + 20


@in_fake_time
async def test_a_cancellation_waits_for_the_end_and_is_left_to_the_caller() -> None:
    """Several of them, too; the first one decides."""
    execution = Execution(deaf, never(), lambda _: None)
    running = asyncio.create_task(execution.run(3_600))
    await asyncio.sleep(1)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(1)
    assert not running.done()
    assert await running == Ending(Status.CANCELLED)
    assert execution.interrupted


@in_fake_time
async def test_work_that_is_cancelled_before_its_first_step_has_failed() -> None:
    """Nobody of ours does that; the end of an event loop may."""
    execution = Execution(long, never(), lambda _: None)
    execution._work.cancel()
    ending = await execution.run(10)
    assert (ending.status, type(ending.error)) == (Status.FAILED, asyncio.CancelledError)


@in_fake_time
async def test_what_ends_by_itself_is_left_alone() -> None:
    """And the lock is asked about no longer."""

    async def three() -> None:
        await asyncio.sleep(3)

    assert await Execution(three, never(), lambda _: None).run(10) == Ending(Status.DONE)


@pytest.mark.parametrize("late", [False, True], ids=["as it ends", "behind its end"])
@in_fake_time
async def test_what_has_ended_has_ended_though_its_process_ends_at_that_moment(*, late: bool) -> None:
    """A cancellation that comes then makes nothing of it that it was not."""
    execution = Execution(nothing, parting(), lambda _: None)
    running = asyncio.create_task(execution.run(10))
    loop = asyncio.get_running_loop()
    if late:
        loop.call_later(1, running.cancel)
    else:
        # Behind its end, and before whoever waits for it has its turn.
        execution._work.add_done_callback(lambda _: running.cancel())
    assert await running == Ending(Status.DONE)
    assert execution.interrupted
