"""A named lock: one holds it, others wait with patience, nobody takes away another's."""

import asyncio
import threading
from datetime import timedelta

import pytest
from fakeredis import FakeRedis

from idempotency import InvalidKeyError, LeaseLostError, LockTimeoutError, MemoryManager, SyncManager
from tests.support.dedup import FakeTime
from tests.support.waiting import until

NONE, MINUTE = timedelta(0), timedelta(seconds=60)


@pytest.fixture
def time() -> FakeTime:
    """The time that the test moves."""
    return FakeTime()


@pytest.fixture
def store(time: FakeTime) -> MemoryManager:
    """A store by this time."""
    return MemoryManager(clock=time, sleep=time.sleep, chance=lambda: 1.0)


async def test_whoever_waits_gets_it_when_it_is_free(store: MemoryManager, time: FakeTime) -> None:
    """Within the longest pause between two questions."""
    order = []

    async def wait() -> None:
        async with store.lock("report", wait=MINUTE):
            order.append("second")

    async with store.lock("report"):
        waiting = asyncio.create_task(wait())
        await time.advance(10)
        order.append("first")
    await time.advance(0.5)
    await waiting
    assert order == ["first", "second"]


async def test_nobody_waits_for_longer_than_wanted(store: MemoryManager, time: FakeTime) -> None:
    """And hears by when the lock may be free."""
    async with store.lock("report", lease=2 * MINUTE):
        waiting = asyncio.create_task(store.lock("report", wait=timedelta(seconds=3)).__aenter__())
        for _ in range(30):
            await time.advance(0.1)
            assert not waiting.done()
        await time.advance(0.6)
        with pytest.raises(LockTimeoutError, match="0:00:03") as refused:
            await waiting
        assert timedelta(seconds=60) < refused.value.retry_after <= 2 * MINUTE


async def test_a_lock_is_renewed(store: MemoryManager, time: FakeTime) -> None:
    """As long as its body runs."""
    async with store.lock("report") as lock:
        for _ in range(10):
            await time.advance(20)
        assert lock.held.deadline == time.now + 60
        with pytest.raises(LockTimeoutError):
            await store.lock("report", wait=NONE).__aenter__()


async def test_a_body_that_lost_its_lock_is_cancelled(store: MemoryManager, time: FakeTime) -> None:
    """And what the next one holds is left alone."""
    late = MemoryManager(clock=time)  # its renewals sleep by another clock, and come too late
    late._simulation = store._simulation
    with pytest.raises(LeaseLostError):  # noqa: PT012 -- the body is what is ended
        async with late.lock("report", lease=timedelta(milliseconds=30)) as lock:
            time.now += 1
            async with store.lock("report", wait=NONE):
                await asyncio.Event().wait()
    assert lock.lost is not None
    async with store.lock("report", wait=NONE):
        pass


async def test_a_wait_that_is_cancelled_leaves_no_lock(store: MemoryManager, time: FakeTime) -> None:
    """Nor does it take one later."""
    async with store.lock("report"):
        waiting = asyncio.create_task(store.lock("report").__aenter__())
        await time.advance(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with store.lock("report", wait=NONE):
        pass


@pytest.mark.parametrize("name", ["", " ", "a{b}"])
async def test_a_name_that_names_nothing_is_refused(store: MemoryManager, name: str) -> None:
    """Before anything is asked."""
    with pytest.raises(InvalidKeyError):
        store.lock(name)


def test_a_wait_before_now_is_refused() -> None:
    """With the value."""
    with pytest.raises(ValueError, match="wait is"):
        MemoryManager().lock("report", wait=-MINUTE)


def test_threads_wait_for_each_other() -> None:
    """One after the other through the same body."""
    inside, most, threads = [0], [0], []
    with FakeRedis() as redis:
        manager = SyncManager(redis)

        def work() -> None:
            with manager.lock("report", wait=MINUTE) as lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                lock.check()
                inside[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert most == [1]
        assert redis.keys() == []


def test_a_thread_sees_that_its_lock_is_lost() -> None:
    """And takes nothing from the next holder."""
    with FakeRedis() as redis:
        manager = SyncManager(redis)
        with manager.lock("report", lease=timedelta(milliseconds=60)) as lock:
            redis.set("pf:lock:report", "another's")
            until(lambda: lock.lost is not None, "the loss is seen")
            with pytest.raises(LeaseLostError):
                lock.check()
        assert redis.get("pf:lock:report") == b"another's"
