"""Whatever a handler does, it ends in an outcome, and the consumer goes on."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from consumers import Classification, Consumer, Context, FatalError, Fixed, Received, TransientError, handling
from consumers.decode import decode
from consumers.delivery import Delivery
from consumers.events import Fate, HandlerOverdue, PipelineFault
from consumers.received import Undecodable
from consumers.testing import Deliveries, in_memory


class OddError(BaseException):
    """As pytest's own, trio's and others' that are no Exception."""


async def cancels_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancels_its_task_and_returns() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def awaits_a_cancelled_task() -> None:
    other = asyncio.ensure_future(asyncio.sleep(1_000))
    other.cancel()
    await other


async def has_a_group_that_fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(1_000))
        group.create_task(awaits_a_cancelled_task())
        raise OSError("no")


def raising(error: BaseException) -> Callable[[], Any]:
    async def raises() -> None:
        raise error

    return raises


ODD = [
    raising(asyncio.CancelledError()),
    raising(OddError("odd")),
    raising(SystemExit(3)),
    raising(BaseExceptionGroup("odd", [OddError("odd"), ValueError("no")])),
    raising(ExceptionGroup("plain", [ValueError("no"), OSError("away")])),
    raising(StopAsyncIteration()),
    cancels_its_task,
    awaits_a_cancelled_task,
    has_a_group_that_fails,
]


DEED: list[Any] = [None]


def what_is_to_do(ctx: Context) -> Any:
    return DEED[0](ctx)


@pytest.fixture
async def deliveries() -> AsyncIterator[Deliveries]:
    """A consumer of one worker: whatever an event leaves behind, the next one meets."""
    consumer = Consumer("billing", concurrency=1, retry=Fixed("5s"))

    @consumer.on("call")
    async def call(event: Received[Any], ctx: Context) -> object:
        return await ctx.state(ctx)

    @consumer.on("call.thread")
    def call_thread(event: Received[Any], ctx: Context) -> object:
        return ctx.state(ctx)

    async with in_memory(consumer, state=what_is_to_do) as deliveries:
        yield deliveries
        assert [event for event in deliveries.events if isinstance(event, PipelineFault)] == []


@pytest.mark.parametrize("deed", ODD)
async def test_what_is_no_exception_costs_an_attempt_as_one_would(
    deliveries: Deliveries, deed: Callable[[], Any]
) -> None:
    """A worker that died of it would keep its event, and renew its lease, for ever."""

    async def odd(ctx: Context) -> None:
        if ctx.attempt == 1:
            await deed()

    DEED[0] = odd
    event = deliveries.publish("call")
    behind = deliveries.publish("call")
    first = await deliveries.wait_for(event)
    assert (first.fate, first.attempt) == (Fate.RETRIED, 1)
    assert (await deliveries.finish(behind)).fate is Fate.DONE or deliveries.fates(behind)[0] is Fate.RETRIED
    assert (await deliveries.finish(event)).fate is Fate.DONE


@pytest.mark.parametrize("error", [SystemExit(3), OddError("odd"), asyncio.CancelledError(), StopIteration()])
async def test_what_is_no_exception_in_a_thread_costs_an_attempt_too(
    deliveries: Deliveries, error: BaseException
) -> None:
    def odd(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise error

    DEED[0] = odd
    event = deliveries.publish("call.thread")
    assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
    await deliveries.advance(5)
    assert (await deliveries.wait_for(event)).fate is Fate.DONE


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), OddError("odd")])
@pytest.mark.parametrize("where", ["upcaster", "validator"])
async def test_what_is_no_exception_costs_an_attempt_before_the_handler_too(error: BaseException, where: str) -> None:
    """The worker goes on: the next event has its permit, and the claim is not renewed for ever."""
    consumer, fail = Consumer("billing", concurrency=1, retry=Fixed("5s")), [True]

    def odd(data: Any) -> Any:
        if fail:
            fail.clear()
            raise error
        return data

    @consumer.on("call", version=2, model=Annotated[Any, AfterValidator(odd)] if where == "validator" else None)
    async def call(event: Received[Any]) -> None: ...

    consumer.upcast("call", from_version=1)(odd if where == "upcaster" else dict)
    async with in_memory(consumer) as deliveries:
        event = deliveries.publish("call", {})
        behind = deliveries.publish("call", {})
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
        assert (await deliveries.wait_for(behind)).fate is Fate.DONE
        assert (await deliveries.finish(event)).fate is Fate.DONE
        assert [event for event in deliveries.events if isinstance(event, PipelineFault)] == []


async def test_a_call_of_sys_exit_does_not_take_the_neighbours_along(deliveries: Deliveries) -> None:
    async def leaves(ctx: Context) -> None:
        sys.exit("a library's idea")

    DEED[0] = leaves
    settled = await deliveries.wait_for(deliveries.publish("call"))
    assert (settled.fate, settled.code) == (Fate.RETRIED, "SystemExit")
    assert deliveries.process.runtime.receiving


async def test_a_cancellation_that_the_handler_leaves_behind_meets_nobody(deliveries: Deliveries) -> None:
    """The completion is written and the next handler runs undisturbed."""

    async def leaves_it(ctx: Context) -> None:
        await cancels_its_task_and_returns()

    DEED[0] = leaves_it
    event = deliveries.publish("call")
    assert (await deliveries.wait_for(event)).fate is Fate.DONE

    async def undisturbed(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        async with asyncio.timeout(10):
            await asyncio.sleep(0)

    DEED[0] = undisturbed
    assert (await deliveries.wait_for(deliveries.publish("call"))).fate is Fate.DONE


async def test_a_lost_lease_and_a_failing_answer_to_it_leave_nothing_behind(deliveries: Deliveries) -> None:
    async def stubborn(ctx: Context) -> None:
        if ctx.attempt == 1 and not lost:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost.append(True)
                raise OSError("while I cleaned up") from None

    lost: list[bool] = []
    DEED[0] = stubborn
    event = deliveries.publish("call")
    await deliveries.advance(1)
    await deliveries.store.forget("billing", event)
    await deliveries.advance(15)
    await deliveries.finish(event)

    async def raises_cancelled(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise asyncio.CancelledError

    DEED[0] = raises_cancelled
    after = deliveries.publish("call")
    assert (await deliveries.finish(after)).fate is Fate.DONE


async def answer_coroutine(ctx: Context) -> object:
    return asyncio.sleep(0)


async def answer_future(ctx: Context) -> object:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("deed", [answer_coroutine, answer_future])
async def test_an_awaitable_as_an_answer_is_a_mistake_that_is_named(deliveries: Deliveries, deed: Any) -> None:
    DEED[0] = deed
    settled = await deliveries.wait_for(deliveries.publish("call"))
    assert (settled.fate, settled.code) == (Fate.RETRIED, "UsageError")
    assert "make it async def" in settled.reason


async def test_a_plain_function_that_answers_with_a_coroutine_is_the_same_mistake(deliveries: Deliveries) -> None:
    DEED[0] = lambda ctx: asyncio.sleep(0)  # noqa: ARG005
    settled = await deliveries.wait_for(deliveries.publish("call.thread"))
    assert (settled.fate, settled.code) == (Fate.RETRIED, "UsageError")


async def test_a_handler_without_a_context_is_called_without_one() -> None:
    consumer, seen = Consumer("billing"), []

    @consumer.on("a")
    async def one(event: Received[Any]) -> None:
        seen.append(event.data)

    @consumer.on("b")
    def two(event: Received[Any]) -> None:
        seen.append(event.data)

    class Three:
        async def __call__(self, event: Received[Any]) -> None:
            seen.append(event.data)

    consumer.on("c")(Three())
    async with in_memory(consumer) as deliveries:
        for number, event_type in enumerate("abc"):
            await deliveries.finish(deliveries.publish(event_type, number))
    assert seen == [0, 1, 2]


async def test_the_event_arrives_whole(deliveries: Deliveries) -> None:
    seen: list[Context] = []

    async def note(ctx: Context) -> None:
        seen.append(ctx)

    DEED[0] = note
    event_id = deliveries.publish(
        "call",
        {"a": [1]},
        aggregate_type="order",
        aggregate_id="o-1",
        ordering_key="o-1",
        actor={"type": "user", "id": "u"},
        attributes={"traceparent": "00-x"},
    )
    await deliveries.finish(event_id)
    event = seen[0].event
    assert (event.event_id, event.event_type, event.version, event.data) == (event_id, "call", 1, {"a": [1]})
    assert (event.aggregate_type, event.aggregate_id, event.ordering_key) == ("order", "o-1", "o-1")
    assert (event.actor, event.sequence) == ({"type": "user", "id": "u"}, 1)
    assert event.created_at == event.occurred_at == deliveries.clock.now()
    assert event.attributes["traceparent"] == "00-x"
    assert (seen[0].consumer, seen[0].attempt, seen[0].stopping) == ("billing", 1, False)


class TestTheNextAttempt:
    """It sees the event as it came, whatever the last one did to it."""

    async def test_has_none_of_what_the_handler_changed(self) -> None:
        consumer, seen = Consumer("billing", retry=Fixed("1s")), []

        @consumer.on("call")
        async def call(event: Received[Any], ctx: Context) -> None:
            event.data["cents"] *= 100
            event.data["lines"].pop()
            seen.append(dict(event.data))
            if ctx.attempt < 3:
                raise TransientError("no")

        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("call", {"cents": 5, "lines": [1, 2]})
            assert (await deliveries.finish(event)).fate is Fate.DONE
        assert seen == [{"cents": 500, "lines": [1]}] * 3

    async def test_has_none_of_what_an_upcaster_changed_in_place(self) -> None:
        consumer, seen = Consumer("billing", retry=Fixed("1s")), []

        @consumer.upcast("call", from_version=1)
        def rename(data: Any) -> Any:
            data["customer"] = data.pop("client")
            return data

        @consumer.on("call", version=2)
        def fail_once(event: Received[Any], ctx: Context) -> None:
            seen.append(event.data)
            if ctx.attempt == 1:
                raise TransientError("no")

        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("call", {"client": 5})
            assert (await deliveries.finish(event)).fate is Fate.DONE
        assert seen == [{"customer": 5}, {"customer": 5}]

    async def test_after_a_deferral_is_one_of_these(self) -> None:
        consumer, seen = Consumer("billing"), []

        @consumer.on("call")
        async def call(event: Received[Any], ctx: Context) -> None:
            seen.append(event.data.pop())
            if len(seen) == 1:
                ctx.defer(30)

        async with in_memory(consumer) as deliveries:
            assert (await deliveries.finish(deliveries.publish("call", [1, 2]))).fate is Fate.DONE
        assert seen == [2, 2]

    async def test_alone_reads_the_message_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An event that is handled at once is read once."""
        consumer, again = Consumer("billing", retry=Fixed("1s")), []

        @consumer.on("call")
        async def call(event: Received[Any], ctx: Context) -> None:
            if event.data and ctx.attempt == 1:
                raise TransientError("no")

        def read(delivery: Delivery) -> Received[Any] | Undecodable:
            again.append(delivery)
            return decode(delivery)

        monkeypatch.setattr(handling, "decode", read)
        async with in_memory(consumer) as deliveries:
            await deliveries.finish(deliveries.publish("call"))
            assert again == []
            await deliveries.finish(deliveries.publish("call", 1))
            assert len(again) == 1


class TestAHandlerInAThread:
    """It cannot be cancelled: it is told of, waited for, and its lease is kept until it returns."""

    async def test_that_has_no_thread_costs_an_attempt_and_runs_at_the_next_one_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However the consumer judges a RuntimeError of its own: containers limit their threads."""
        consumer, ran = Consumer("billing", retry=Fixed("5s"), classification=Classification(retry_on=(OSError,))), []

        @consumer.on("call")
        def call(event: Received[Any], ctx: Context) -> None:
            ran.append(ctx.attempt)

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        async with in_memory(consumer) as deliveries:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", start)
                event = deliveries.publish("call")
                settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.code) == (Fate.RETRIED, "NO_THREAD")
            assert "can't start new thread" in settled.reason
            assert (await deliveries.finish(event)).fate is Fate.DONE
            await deliveries.finish(deliveries.publish("call"))
        assert ran == [2, 1]

    async def test_that_is_late_is_told_of_once_and_its_answer_counts(self, deliveries: Deliveries) -> None:
        go = threading.Event()
        DEED[0] = lambda ctx: go.wait(10) and None  # noqa: ARG005
        event = deliveries.publish("call.thread")
        await deliveries.advance(300)
        overdue = [event for event in deliveries.events if isinstance(event, HandlerOverdue)]
        assert [(late.subject.event_id, late.seconds) for late in overdue] == [(event, 45)]
        assert deliveries.fates(event) == []
        go.set()
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    async def test_keeps_its_lease_however_long_it_takes(self, deliveries: Deliveries) -> None:
        go = threading.Event()
        DEED[0] = lambda ctx: go.wait(10) and None  # noqa: ARG005
        event = deliveries.publish("call.thread")
        await deliveries.advance(3_600)
        answer = await deliveries.store.claim("billing", event)
        assert answer.retry_after.total_seconds() > 40  # type: ignore[union-attr]
        go.set()
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    async def test_whose_lease_is_lost_runs_on_and_its_answer_is_ignored(self, deliveries: Deliveries) -> None:
        go = threading.Event()
        DEED[0] = lambda ctx: go.wait(10) and None  # noqa: ARG005
        event = deliveries.publish("call.thread")
        await deliveries.advance(10)
        await deliveries.store.forget("billing", event)
        await deliveries.store.claim("billing", event)
        await deliveries.advance(20)
        assert deliveries.fates(event) == []
        go.set()
        assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST
        assert deliveries.pending == 1

    async def test_does_not_hold_up_the_others(self) -> None:
        go = threading.Event()
        consumer = Consumer("billing", dedup="none", concurrency=3)

        @consumer.on("slow")
        def slow(event: Received[Any]) -> None:
            go.wait(10)

        @consumer.on("quick")
        async def quick(event: Received[Any]) -> None:
            go.set()

        async with in_memory(consumer) as deliveries:
            blocked = deliveries.publish("slow")
            deliveries.publish("quick")
            assert (await deliveries.wait_for(blocked)).fate is Fate.DONE

    async def test_defers_throttles_and_raises_as_others_do(self, deliveries: Deliveries) -> None:
        def busy(ctx: Context) -> None:
            ctx.throttle_all(10)
            if ctx.event.data == "defer":
                ctx.defer(30)
            elif ctx.event.data == "fatal":
                raise FatalError("gone")
            else:
                raise TransientError("no", delay=7)

        DEED[0] = busy
        assert (await deliveries.wait_for(deliveries.publish("call.thread", "defer"))).again_in == 30
        fatal = deliveries.publish("call.thread", "fatal")
        await deliveries.advance(10)
        assert (await deliveries.wait_for(fatal)).fate is Fate.DEAD
        transient = deliveries.publish("call.thread")
        await deliveries.advance(10)
        assert (await deliveries.wait_for(transient)).again_in == 7


async def test_a_handler_that_keeps_a_timeout_to_itself_and_answers_is_believed(deliveries: Deliveries) -> None:
    """As Python's own timeouts do: whoever swallows a cancellation says that it has come to an end."""

    async def stubborn(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    DEED[0] = stubborn
    event = deliveries.publish("call")
    await deliveries.advance(45)
    assert (await deliveries.wait_for(event)).fate is Fate.DONE
