"""A body for a claim: its lease is renewed, its end is settled, and others' cancellations stay theirs."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from fakeredis import FakeRedis

from idempotency import (
    Claimed,
    Done,
    InProgress,
    LeaseLostError,
    MemoryManager,
    StoreUnavailableError,
    SyncManager,
)
from tests.support.dedup import FakeTime
from tests.support.waiting import until

LEASE = timedelta(seconds=60)


@pytest.fixture
def time() -> FakeTime:
    """The time that the test moves."""
    return FakeTime()


class Store(MemoryManager):
    """A store that can be out of reach."""

    away = False
    completing: asyncio.Event | None = None

    async def ask(self, call: Any) -> Any:
        """Answer, or not."""
        if self.away:
            raise StoreUnavailableError("out of reach")
        if self.completing and call.script.name == "complete":
            self.completing.set()
            await asyncio.sleep(0)
        return await super().ask(call)


@pytest.fixture
def store(time: FakeTime) -> Store:
    """A store by this time."""
    return Store(clock=time, sleep=time.sleep)


@pytest.fixture
def event() -> UUID:
    """An event that nobody has seen."""
    return uuid4()


async def test_a_long_body_keeps_its_claim(store: Store, time: FakeTime, event: UUID) -> None:
    """The lease is renewed when a third of it is over, again and again."""
    async with store.once("billing", event) as work:
        for _ in range(20):
            await time.advance(20)
            assert isinstance(await store.claim("billing", event), InProgress)
        assert work.claim.deadline == time.now + 60
        assert work.lost is None
    assert await store.claim("billing", event) == Done()


async def test_a_body_that_lost_its_claim_is_cancelled(store: Store, time: FakeTime, event: UUID) -> None:
    """LeaseLostError is what its caller hears of, and the caller is not cancelled."""
    with pytest.raises(LeaseLostError):  # noqa: PT012 -- the body is what is ended
        async with store.once("billing", event) as work:
            await store.forget("billing", event)
            assert isinstance(await store.claim("billing", event), Claimed)
            moving = asyncio.create_task(time.advance(20))
            await asyncio.Event().wait()
    await moving
    assert isinstance(work.lost, LeaseLostError)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert isinstance(await store.claim("billing", event), InProgress)


async def test_a_store_out_of_reach_is_asked_until_the_lease_is_over(store: Store, time: FakeTime, event: UUID) -> None:
    """A failed renewal loses nothing by itself; the end of the lease does."""
    with pytest.raises(LeaseLostError, match="could not be renewed") as lost:  # noqa: PT012 -- the body is what is ended
        async with store.once("billing", event) as work:
            store.away = True
            for _ in range(8):
                await time.advance(6)
                assert work.lost is None
            store.away = False
            await time.advance(6)
            assert work.claim.deadline == time.now + 60
            store.away = True
            for _ in range(9):
                await time.advance(7)
            await asyncio.Event().wait()
    assert isinstance(lost.value.__cause__, asyncio.CancelledError | StoreUnavailableError)


async def test_a_body_that_ends_without_an_await_is_settled(store: Store, time: FakeTime, event: UUID) -> None:
    """A loss that is told at the very end cancels nobody; the completion is what counts."""
    async with store.once("billing", event) as work:
        store.away = True
        for _ in range(7):
            time.now += 10
        store.away = False
    assert await store.claim("billing", event) == Done()
    await asyncio.sleep(0)
    assert work.claim.attempt == 1


async def test_a_cancelled_body_gives_its_event_back_uncounted(store: Store, event: UUID) -> None:
    """As at a shutdown: nobody has judged the event."""
    entered = asyncio.Event()

    async def work() -> None:
        async with store.once("billing", event):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await store.claim("billing", event)
    assert isinstance(again, Claimed)
    assert again.attempt == 1


async def test_a_cancellation_does_not_break_off_the_completion(store: Store, event: UUID) -> None:
    """The effect took place; the mark is set, and the cancellation is heard of afterwards."""
    store.completing = asyncio.Event()

    async def work() -> None:
        async with store.once("billing", event):
            pass

    task = asyncio.create_task(work())
    await store.completing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.claim("billing", event) == Done()


async def test_a_timeout_around_it_stays_a_timeout(store: Store, event: UUID) -> None:
    """Its cancellation is not mistaken for one of ours."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), store.once("billing", event):
            await asyncio.Event().wait()
    assert isinstance(await store.claim("billing", event), Claimed)


async def test_what_cannot_be_released_is_noted(store: Store, event: UUID) -> None:
    """The body's own exception is the one that is raised."""
    with pytest.raises(ZeroDivisionError) as failed:  # noqa: PT012 -- the body is what is ended
        async with store.once("billing", event):
            store.away = True
            raise ZeroDivisionError
    assert "could not be released" in failed.value.__notes__[0]


async def test_a_completion_that_cannot_be_written_is_raised(store: Store, event: UUID) -> None:
    """The caller must not acknowledge what may come again."""
    with pytest.raises(StoreUnavailableError):
        async with store.once("billing", event):
            store.away = True


async def test_a_cancelled_claim_holds_nothing(store: Store, event: UUID) -> None:
    """The claim may have been granted while its caller went away."""
    task = asyncio.create_task(store.once("billing", event).__aenter__())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await store.claim("billing", event)
    assert isinstance(again, Claimed)
    assert again.attempt == 1


async def test_a_fingerprint_and_a_lease_are_passed_on(store: Store, time: FakeTime, event: UUID) -> None:
    """Those of the claim."""
    async with store.once("billing", event, lease=timedelta(seconds=5), fingerprint="a") as work:
        assert (work.claim.lease, work.claim.fingerprint) == (timedelta(seconds=5), "a")
        assert work.claim.deadline == time.now + 5


def test_nothing_is_told_of_a_claim_before_it() -> None:
    """Whoever forgot `with` hears of it."""
    with pytest.raises(RuntimeError, match="async with"):
        _ = MemoryManager().once("billing", uuid4()).claim
    with pytest.raises(RuntimeError, match="with manager"):
        _ = SyncManager(FakeRedis()).once("billing", uuid4()).claim


def test_a_thread_renews_a_long_body(event: UUID) -> None:
    """It ends with the body."""
    with FakeRedis() as redis:
        manager = SyncManager(redis)
        with manager.once("billing", event, lease=timedelta(seconds=2)) as work:
            first = work.claim.deadline
            until(lambda: work.claim.deadline > first, "renewed")
            keeper = work._keeper
            work.check()
        assert keeper
        assert not keeper._thread.is_alive()
        assert manager.claim("billing", event) == Done()


def test_a_thread_that_lost_its_claim_sees_it(event: UUID) -> None:
    """Nothing interrupts it; its end says that it came too late."""
    with FakeRedis() as redis:
        manager = SyncManager(redis)
        with (  # noqa: PT012 -- the body is what is ended
            pytest.raises(LeaseLostError),
            manager.once("billing", event, lease=timedelta(milliseconds=60)) as work,
        ):
            manager.forget("billing", event)
            manager.claim("billing", event)
            until(lambda: work.lost is not None, "the loss is seen")
            with pytest.raises(LeaseLostError):
                work.check()


def test_a_failed_body_of_a_thread_is_given_back(event: UUID) -> None:
    """Counted as an attempt."""
    with FakeRedis() as redis:
        manager = SyncManager(redis)
        with pytest.raises(ZeroDivisionError), manager.once("billing", event):
            raise ZeroDivisionError
        again = manager.claim("billing", event)
        assert isinstance(again, Claimed)
        assert again.attempt == 2
