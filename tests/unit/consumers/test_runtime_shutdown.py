"""The end of a consumer: nothing new, what waits goes back, what runs may finish, what is late is cut short."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal

import pytest

from consumers import ConfigurationError, Consumer, Context, Fixed, Received, TransientError
from consumers.delivery import Delivery
from consumers.events import CompletionUnwritten, ConsumerStarted, ConsumerStopped, Fate
from consumers.testing import Deliveries, in_memory
from idempotency import Claimed

ModeName = Literal["mark", "claim", "none"]
MODES: list[ModeName] = ["mark", "claim", "none"]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> ModeName:
    chosen: ModeName = request.param
    return chosen


def consumer_of(mode: ModeName, handler: Any, **how: Any) -> Consumer:
    """A consumer whose handler of `order.paid` is this one."""
    consumer = Consumer("billing", dedup=mode, **how)
    consumer.on("order.paid")(handler)
    return consumer


async def hang(event: Received[Any], ctx: Context) -> None:
    await asyncio.Event().wait()


async def quick(event: Received[Any]) -> None:
    """An effect that takes no time."""


@contextmanager
def given_back(deliveries: Deliveries) -> Iterator[list[tuple[str, float]]]:
    """What the source is given back from here on, with the delay, in its order."""
    source = deliveries.process.source
    seen: list[tuple[str, float]] = []
    plain = source.give_back

    def noted(delivery: Delivery, delay: float = 0.0) -> None:
        seen.append((delivery.attributes["event_id"], delay))
        plain(delivery, delay)

    source.give_back = noted  # type: ignore[method-assign]
    yield seen


async def test_a_handler_that_ends_within_the_soft_timeout_is_completed(mode: ModeName) -> None:
    seen: list[bool] = []

    async def work(event: Received[Any], ctx: Context) -> None:
        await deliveries.clock.sleep(20)
        seen.append(ctx.stopping)

    async with in_memory(consumer_of(mode, work)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(1)
        abandoned = await deliveries.stop()
    assert (abandoned, deliveries.fates(event), deliveries.pending, seen) == ((), [Fate.DONE], 0, [True])


@pytest.mark.parametrize("noticed", [True, False])
async def test_one_that_finishes_is_believed_although_a_library_left_a_cancellation_behind(
    mode: ModeName, *, noticed: bool
) -> None:
    """As old timeouts do: they cancel the task, catch that, and do not take it back."""
    go = asyncio.Event()

    async def work(event: Received[Any]) -> None:
        await go.wait()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if noticed:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async with in_memory(consumer_of(mode, work)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        stopping = asyncio.create_task(deliveries.stop())
        await deliveries.advance(1)
        go.set()
        assert await stopping == ()
        assert (deliveries.fates(event), deliveries.pending) == ([Fate.DONE], 0)


async def test_a_handler_that_does_not_is_cancelled_and_its_event_released_uncounted(mode: ModeName) -> None:
    ended: list[float] = []

    async def work(event: Received[Any], ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(deliveries.clock.monotonic())

    async with in_memory(consumer_of(mode, work, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        began = deliveries.clock.monotonic()
        abandoned = await deliveries.stop()
        assert (abandoned, deliveries.fates(event), deliveries.pending) == ((), [Fate.RELEASED], 1)
        assert ended[0] - began == 25
        done = consumer_of(mode, quick)
        async with in_memory(done, clock=deliveries.clock, store=deliveries.store) as later:
            later.publish("order.paid", event_id=event)
            settled = await later.wait_for(event)
            assert (settled.fate, settled.attempt) == (Fate.DONE, 1)


async def test_nothing_is_begun_any_more_and_what_waits_goes_back_at_once(mode: ModeName) -> None:
    async with in_memory(consumer_of(mode, hang, concurrency=1)) as deliveries:
        running = deliveries.publish("order.paid")
        waiting = [deliveries.publish("order.paid") for _ in range(3)]
        await deliveries.advance(0)
        with given_back(deliveries) as seen:
            await deliveries.stop()
        assert seen == [*((str(event), 0.0) for event in waiting), (str(running), 0.0)]
        assert all(deliveries.fates(event) == [] for event in waiting)
        (stopped,) = [event for event in deliveries.events if isinstance(event, ConsumerStopped)]
        assert stopped.released == 3


async def test_one_that_rests_goes_back_with_what_is_left_of_its_rest(mode: ModeName) -> None:
    async def fail(event: Received[Any], ctx: Context) -> None:
        raise TransientError("no")

    async with in_memory(consumer_of(mode, fail, retry=Fixed("60s"))) as deliveries:
        event = deliveries.publish("order.paid")
        behind = deliveries.publish("order.paid", event_id=event)
        await deliveries.advance(20)
        with given_back(deliveries) as seen:
            await deliveries.stop()
        assert (seen, behind) == ([(str(event), 40.0), (str(event), 0.0)], event)


async def test_what_waits_behind_a_running_one_of_its_key_goes_back_after_it(mode: ModeName) -> None:
    """Given back before, another process could act on it first."""
    go = asyncio.Event()

    async def work(event: Received[Any], ctx: Context) -> None:
        await go.wait()

    async with in_memory(consumer_of(mode, work)) as deliveries:
        deliveries.publish("order.paid", ordering_key="o-1")
        behind = deliveries.publish("order.paid", ordering_key="o-1")
        await deliveries.advance(0)
        with given_back(deliveries) as seen:
            stopping = asyncio.create_task(deliveries.stop())
            await deliveries.advance(1)
            assert seen == []
            go.set()
            await stopping
        assert seen == [(str(behind), 0.0)]


async def test_a_retry_during_the_end_goes_back_and_does_not_rest(mode: ModeName) -> None:
    async def fail(event: Received[Any], ctx: Context) -> None:
        await deliveries.clock.sleep(10)
        raise TransientError("no")

    async with in_memory(consumer_of(mode, fail, retry=Fixed("60s"))) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        with given_back(deliveries) as seen:
            await deliveries.stop()
        assert (seen, deliveries.fates(event)) == ([(str(event), 60.0)], [Fate.RETRIED])


async def test_a_thread_is_waited_for_and_its_answer_counts(mode: ModeName) -> None:
    go = threading.Event()

    def work(event: Received[Any], ctx: Context) -> None:
        while not ctx.stopping:
            go.wait(0.001)

    async with in_memory(consumer_of(mode, work)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        assert await deliveries.stop() == ()
        assert (deliveries.fates(event), deliveries.pending) == ([Fate.DONE], 0)


async def test_a_thread_that_does_not_return_is_abandoned_and_its_lease_left_to_expire() -> None:
    go = threading.Event()

    def work(event: Received[Any]) -> None:
        go.wait(10)

    async with in_memory(consumer_of("claim", work, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        abandoned = await deliveries.stop()
        assert [f"work of {event}" in name for name in abandoned] == [True]
        assert (deliveries.fates(event), deliveries.pending) == ([], 1)
        still = await deliveries.store.claim("billing", event)
        assert 30 < still.retry_after.total_seconds() <= 60  # type: ignore[union-attr]
        await deliveries.advance(60)
        assert isinstance(await deliveries.store.claim("billing", event), Claimed)
    go.set()


async def test_a_thread_that_does_not_return_keeps_its_mark() -> None:
    """At most once: the thread may yet have its effect."""
    go = threading.Event()

    def work(event: Received[Any]) -> None:
        go.wait(10)

    async with in_memory(consumer_of("mark", work)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        await deliveries.stop()
        await deliveries.restart()
        assert (await deliveries.wait_for(event)).fate is Fate.DUPLICATE
    go.set()


async def test_a_handler_that_keeps_its_cancellation_to_itself_is_abandoned_and_does_not_keep_the_process() -> None:
    free = asyncio.Event()

    async def stubborn(event: Received[Any]) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with in_memory(consumer_of("claim", stubborn, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        began = deliveries.clock.monotonic()
        abandoned = await deliveries.stop()
        assert len(abandoned) == 1
        assert deliveries.clock.monotonic() - began < 30
        assert deliveries.fates(event) == []
        assert not isinstance(await deliveries.store.claim("billing", event), Claimed)
    free.set()


async def test_a_handler_that_is_slow_to_end_is_released_when_it_has_ended() -> None:
    """Its clean-up takes its time, and is not begun anew elsewhere meanwhile."""

    async def slow(event: Received[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await deliveries.clock.sleep(1)
            raise

    async with in_memory(consumer_of("claim", slow, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        assert await deliveries.stop() == ()
        assert deliveries.fates(event) == [Fate.RELEASED]
        assert isinstance(await deliveries.store.claim("billing", event), Claimed)


async def test_a_handler_whose_first_cancellation_does_not_work_is_cancelled_once_more_and_released() -> None:
    async def hard_of_hearing(event: Received[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async with in_memory(consumer_of("claim", hard_of_hearing, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        await deliveries.stop()
        assert deliveries.fates(event) == [Fate.RELEASED]


async def test_a_completion_that_waits_for_the_store_is_given_up_and_acknowledged() -> None:
    """To have it delivered again would surely repeat the effect."""

    async def book(event: Received[Any]) -> None:
        deliveries.weather.store_away = True

    async with in_memory(consumer_of("claim", book)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(30)
        assert deliveries.fates(event) == []
        assert await deliveries.stop() == ()
        assert (deliveries.fates(event), deliveries.pending) == ([Fate.DONE], 0)
        (unwritten,) = [event for event in deliveries.events if isinstance(event, CompletionUnwritten)]
        assert unwritten.subject.event_id == event


async def test_leases_are_renewed_until_the_last_handler_has_ended() -> None:
    async def long(event: Received[Any]) -> None:
        await deliveries.clock.sleep(24)

    async with in_memory(consumer_of("claim", long, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        stopping = asyncio.create_task(deliveries.stop())
        await deliveries.advance(23)
        answer = await deliveries.store.claim("billing", event)
        assert answer.retry_after.total_seconds() > 45  # type: ignore[union-attr]
        await deliveries.advance(1)
        await stopping
        assert deliveries.fates(event) == [Fate.DONE]


async def test_the_lifespan_is_around_all_handlers(mode: ModeName) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        steps.append("begins")
        yield "the state"
        steps.append("ends")

    async def work(event: Received[Any], ctx: Context) -> None:
        await deliveries.clock.sleep(5)
        steps.append(ctx.state)

    async with in_memory(consumer_of(mode, work, lifespan=lifespan)) as deliveries:
        deliveries.publish("order.paid")
        await deliveries.advance(0)
    assert steps == ["begins", "the state", "ends"]


async def test_readiness_ends_with_the_intake() -> None:
    async def work(event: Received[Any]) -> None:
        await deliveries.clock.sleep(5)

    async with in_memory(consumer_of("claim", work)) as deliveries:
        deliveries.publish("order.paid")
        await deliveries.advance(1)
        runtime = deliveries.process.runtime
        assert runtime.receiving
        stopping = asyncio.create_task(deliveries.stop())
        await deliveries.advance(1)
        assert not runtime.receiving
        await stopping


async def test_the_cancelled_task_of_a_consumer_releases_what_it_holds(mode: ModeName) -> None:
    """As `async with consumer.running()` does, or a framework that is stopped hard."""
    async with in_memory(consumer_of(mode, hang)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        process = deliveries.process
        process.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deliveries.stop()
        assert deliveries.fates(event) == [Fate.RELEASED]


async def test_a_lease_that_is_lost_and_then_the_end_are_two_cancellations_and_one_word() -> None:
    async def slow(event: Received[Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await deliveries.clock.sleep(60)

    async with in_memory(consumer_of("claim", slow, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(1)
        await deliveries.store.forget("billing", event)
        await deliveries.store.claim("billing", event)
        await deliveries.advance(15)
        await deliveries.stop()
        assert deliveries.fates(event) == [Fate.LEASE_LOST]
        assert deliveries.pending == 1


async def test_a_process_that_is_killed_leaves_its_leases_to_expire() -> None:
    async with in_memory(consumer_of("claim", hang, timeout=None)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        await deliveries.crash()
        assert not isinstance(await deliveries.store.claim("billing", event), Claimed)
        await deliveries.restart()
        assert (await deliveries.wait_for(event)).fate is Fate.BUSY
        await deliveries.advance(60)
        assert deliveries.process.runtime.stats(1.0).running == 1


async def test_a_consumer_without_a_handler_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="there is no handler"):
        async with in_memory(Consumer("billing")):
            pass


async def test_a_lifespan_that_fails_ends_the_start_and_closes_all() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        async with in_memory(consumer_of("claim", hang, lifespan=lifespan)):
            pass


async def test_the_start_says_what_is_read_and_how() -> None:
    async with in_memory(consumer_of("mark", hang, concurrency=7)) as deliveries:
        (started,) = [event for event in deliveries.events if isinstance(event, ConsumerStarted)]
        assert started == ConsumerStarted("billing", "billing", "mark", "billing-dead-letters", ("order.paid",), 7)


async def test_a_completion_that_the_store_never_answers_is_given_up_and_acknowledged() -> None:
    """A store that hangs is worse than one that is away, and the end comes all the same."""

    async def book(event: Received[Any]) -> None:
        deliveries.weather.store_hangs = True

    async with in_memory(consumer_of("claim", book)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(1)
        began = deliveries.clock.monotonic()
        assert await deliveries.stop() == ()
        assert deliveries.clock.monotonic() - began < 28
        assert (deliveries.fates(event), deliveries.pending) == ([Fate.DONE], 0)
        assert [event for event in deliveries.events if isinstance(event, CompletionUnwritten)]


async def test_a_thread_in_a_service_keeps_its_lease_until_it_ends() -> None:
    """The process goes on behind the consumer: nobody else may have the event while the thread does."""
    free = threading.Event()

    def slow(event: Received[Any]) -> None:
        free.wait(20)

    async with in_memory(consumer_of("claim", slow, timeout=None), outlived=True) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(0)
        stopping = asyncio.create_task(deliveries.stop())
        await deliveries.advance(300)
        assert not isinstance(await deliveries.store.claim("billing", event), Claimed)
        assert not stopping.done()
        free.set()
        await stopping
        assert deliveries.fates(event) == [Fate.DONE]
