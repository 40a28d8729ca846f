"""What a handler is given beside its event."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from consumers import Consumer, Context, Received
from consumers.events import Throttled
from consumers.tell import lag_of
from consumers.testing import Fate, handle, in_memory


def throttle(event: Received[Any], ctx: Context) -> None:
    ctx.throttle_all(timedelta(minutes=1))


async def ran(deed: Callable[[Context], Any], **how: Any) -> Any:
    """What a handler came to that does this with its context."""
    consumer = Consumer("billing", **how)

    @consumer.on("a")
    async def do(event: Received[Any], ctx: Context) -> Any:
        return deed(ctx)

    return await handle(consumer, "a", aggregate_type="order", aggregate_id="o-1")


class TestDefer:
    """Not now."""

    @pytest.mark.parametrize(("until", "seconds"), [(30, 30), (0.5, 0.5), (timedelta(hours=1), 3_600), (-5, 0)])
    async def test_takes_seconds_and_durations(self, until: Any, seconds: float) -> None:
        handled = await ran(lambda ctx: ctx.defer(until))
        assert (handled.fate, handled.again_in) == (Fate.DEFERRED, seconds)

    async def test_takes_a_moment_with_its_zone(self) -> None:
        handled = await ran(lambda ctx: ctx.defer(datetime(2000, 1, 1, tzinfo=UTC)))
        assert (handled.fate, handled.again_in) == (Fate.DEFERRED, 0)

    @pytest.mark.parametrize("until", [float("nan"), float("inf"), "tomorrow", None, datetime(2026, 1, 1)])  # noqa: DTZ001
    async def test_refuses_what_is_no_time_and_says_what_to_write(self, until: Any) -> None:
        handled = await ran(lambda ctx: ctx.defer(until))
        assert (handled.fate, handled.code) == (Fate.RETRIED, "UsageError")
        assert "write" in handled.reason

    async def test_told_twice_the_last_one_holds(self) -> None:
        def twice(ctx: Context) -> None:
            ctx.defer(30)
            ctx.defer(60)

        assert (await ran(twice)).again_in == 60


class TestThrottleAll:
    """No further event of this type."""

    @pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "x", None])
    async def test_refuses_what_is_no_time_and_says_what_to_write(self, seconds: Any) -> None:
        handled = await ran(lambda ctx: ctx.throttle_all(seconds))
        assert (handled.fate, handled.code) == (Fate.RETRIED, "UsageError")
        assert "write" in handled.reason

    async def test_is_told(self) -> None:
        consumer = Consumer("billing")
        consumer.on("a")(throttle)
        async with in_memory(consumer) as deliveries:
            await deliveries.finish(deliveries.publish("a"))
            assert Throttled("billing", "a", 60.0) in deliveries.events


class TestLock:
    """A name that others keep off."""

    async def test_lets_one_in_at_a_time(self) -> None:
        consumer, inside, most = Consumer("billing"), 0, 0

        @consumer.on("a")
        async def work(event: Received[Any], ctx: Context) -> None:
            nonlocal inside, most
            async with ctx.lock("ledger"):
                inside += 1
                most = max(most, inside)
                await deliveries.clock.sleep(1)
                inside -= 1

        async with in_memory(consumer) as deliveries:
            events = [deliveries.publish("a") for _ in range(5)]
            await deliveries.advance(20)
            assert [deliveries.fates(event) for event in events] == [[Fate.DONE]] * 5
        assert most == 1

    async def test_is_there_for_plain_functions_too(self) -> None:
        consumer, inside, most = Consumer("billing"), 0, 0

        @consumer.on("a")
        def work(event: Received[Any], ctx: Context) -> None:
            nonlocal inside, most
            with ctx.lock("ledger"):
                inside += 1
                most = max(most, inside)
                inside -= 1

        async with in_memory(consumer) as deliveries:
            for _ in range(5):
                deliveries.publish("a")
            await deliveries.drain()
            assert len(deliveries.settled) == 5
        assert most == 1

    async def test_that_is_held_for_too_long_is_transient(self) -> None:
        consumer = Consumer("billing")

        @consumer.on("a")
        async def work(event: Received[Any], ctx: Context) -> None:
            async with ctx.lock("ledger", wait=5):
                pass

        async with in_memory(consumer) as deliveries, deliveries.store.lock("ledger"):
            event = deliveries.publish("a")
            await deliveries.advance(6)
            settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.code) == (Fate.RETRIED, "LockTimeoutError")

    async def test_that_is_lost_cancels_the_handler_and_is_transient(self) -> None:
        consumer, after = Consumer("billing", timeout=None, dedup="none"), []

        @consumer.on("a")
        async def work(event: Received[Any], ctx: Context) -> None:
            async with ctx.lock("ledger"):
                await asyncio.Event().wait()
            after.append(event)

        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("a")
            await deliveries.advance(1)
            deliveries.weather.store_away = True
            await deliveries.advance(70)
            settled = await deliveries.wait_for(event)
            deliveries.weather.store_away = False
            assert (settled.fate, settled.code, after) == (Fate.RETRIED, "LeaseLostError", [])

    async def test_that_a_thread_has_lost_is_told_at_its_end(self) -> None:
        """The thread cannot be cancelled; what it did was not protected."""
        consumer, go = Consumer("billing", timeout=None, dedup="none"), threading.Event()

        @consumer.on("a")
        def work(event: Received[Any], ctx: Context) -> None:
            with ctx.lock("ledger"):
                began.set()
                go.wait(10)

        began = threading.Event()
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("a")
            await deliveries.advance(0)
            await asyncio.to_thread(began.wait, 10)
            deliveries.weather.store_away = True
            await deliveries.advance(70)
            deliveries.weather.store_away = False
            go.set()
            settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.code) == (Fate.RETRIED, "LeaseLostError")

    async def test_in_the_loop_without_await_is_refused(self) -> None:
        def block(ctx: Context) -> None:
            with ctx.lock("ledger"):
                pass

        handled = await ran(block)
        assert (handled.fate, handled.code) == (Fate.RETRIED, "UsageError")
        assert "async with ctx.lock" in handled.reason


async def test_a_log_line_names_the_event() -> None:
    structlog.reset_defaults()
    with capture_logs() as lines:
        handled = await ran(lambda ctx: ctx.log.info("booked", cents=7))
    assert lines == [
        {
            "event": "booked",
            "log_level": "info",
            "cents": 7,
            "consumer": "billing",
            "event_id": str(handled.event.event_id),
            "event_type": "a",
            "aggregate_type": "order",
            "aggregate_id": "o-1",
            "attempt": 1,
        }
    ]


def test_the_lag_counts_from_the_storing_or_else_the_publishing() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert lag_of(noon, 5.0, noon.timestamp() + 3) == 3
    assert lag_of(None, noon.timestamp(), noon.timestamp() + 3) == 3
    assert lag_of(None, 0.0, noon.timestamp()) is None
    assert lag_of(noon, 0.0, noon.timestamp() - 3) == 0
