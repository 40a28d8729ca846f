"""The task of a consumer is cancelled after each turn of the event loop, once and twice; another process goes on."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from consumers import Consumer, Context, Fixed, Received
from consumers.testing import in_memory
from consumers.testing.clock import settle

EVENTS = 8


async def cancelled(mode: str, turns: int, second: int | None) -> tuple[Counter[Any], list[int], int]:
    effects: Counter[Any] = Counter()
    attempts: list[int] = []
    consumer = Consumer("billing", dedup=mode, concurrency=3, retry=Fixed("1s"))  # type: ignore[arg-type]

    @consumer.on("order.paid")
    async def book(event: Received[Any], ctx: Context) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        effects[event.event_id] += 1
        attempts.append(ctx.attempt)

    async with in_memory(consumer) as deliveries:
        for number in range(EVENTS):
            deliveries.publish("order.paid", ordering_key="k" if number % 2 else "")
        for _ in range(turns):
            await asyncio.sleep(0)
        task = deliveries.process.task
        process = deliveries.process
        task.cancel()
        if second is not None:
            for _ in range(second):
                await asyncio.sleep(0)
            task.cancel()
        for _ in range(60):
            if task.done():
                break
            await settle()
            await deliveries.clock.advance(1)
        assert task.done(), "it hangs"
        deliveries._process = None
        process.source.drop()
        await deliveries.clock.advance(61)
        await deliveries.restart()
        for _ in range(10):
            await deliveries.advance(30)
        return effects, attempts, deliveries.pending


@pytest.mark.parametrize("mode", ["claim", "mark"])
async def test_a_cancellation_loses_repeats_and_counts_nothing(mode: str) -> None:
    wrong = []
    for turns in range(60):
        effects, attempts, pending = await cancelled(mode, turns, None)
        if pending or len(effects) != EVENTS or set(effects.values()) != {1} or set(attempts) != {1}:
            wrong.append((turns, len(effects), sorted(effects.values()), attempts, pending))
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("mode", ["claim", "mark"])
async def test_nor_does_a_second_one(mode: str) -> None:
    wrong = []
    for turns in range(0, 40, 3):
        for second in (0, 1, 2, 3, 5, 8):
            effects, attempts, pending = await cancelled(mode, turns, second)
            if pending or len(effects) != EVENTS or set(effects.values()) != {1} or set(attempts) != {1}:
                wrong.append((turns, second, len(effects), sorted(effects.values()), attempts, pending))
    assert not wrong, (len(wrong), wrong[:5])
