"""Progress is said as often as one likes, and noted now and then, the newest last."""

import asyncio
import threading
import time
from fractions import Fraction
from typing import Any

import pytest

from consumers import Context, Received
from consumers.events import NoteLost, ProgressMade
from consumers.testing import Deliveries, Fate, handle, in_memory
from idempotency import LeaseLostError
from tests.unit.consumers.notebooks import Book, consumer_of, keep_history


@pytest.fixture
async def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    """The history of whatever is handled."""
    return keep_history(monkeypatch)


async def said(book: Book, *percents: Any, every: float = 0.0) -> list[float]:
    """What was noted of these, said by an asynchronous handler so many seconds apart."""

    async def work(event: Received[Any], ctx: Context) -> None:
        for percent in percents:
            await ctx.progress(percent)
            await asyncio.sleep(0.001)
            await deliveries.clock.advance(every)

    async with in_memory(consumer_of(work, timeout=None)) as deliveries:
        assert (await deliveries.finish(deliveries.publish("a"))).fate is Fate.DONE
    return book.percents


async def test_small_steps_at_once_are_noted_when_they_come_to_one(book: Book) -> None:
    assert await said(book, *(step / 4 for step in range(11))) == [0, 1, 2]


async def test_small_steps_are_noted_every_half_second(book: Book) -> None:
    assert await said(book, 10, 10.125, 10.25, 10.375, 10.5, every=0.25) == [10, 10.25, 10.5]


async def test_the_same_again_is_noted_once(book: Book) -> None:
    assert await said(book, 10, 10, 10.0, 10, every=1) == [10]


async def test_a_hundred_is_always_noted_and_once(book: Book) -> None:
    assert await said(book, 99.5, 99.75, 100, 100, 100.0) == [99.5, 100]


async def test_it_may_go_back(book: Book) -> None:
    """A handler that begins something anew says so."""
    assert await said(book, 80, 10, 10.5, 9) == [80, 10, 9]


async def test_any_real_number_is_one(book: Book) -> None:
    assert await said(book, Fraction(81, 2), -0.0) == [40.5, 0.0]
    assert str(book.percents[1]) == "0.0"


@pytest.mark.parametrize(
    "percent",
    [-0.001, 100.001, float("nan"), float("inf"), float("-inf"), 10**400, -(10**5_000), "40", None, True, 1j, [40]],
    ids=range(12),
)
async def test_what_is_no_percentage_is_refused(percent: Any, book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.progress(percent)

    handled = await handle(consumer_of(work), "a")
    assert (handled.code, book.notes) == ("UsageError", [])
    assert "give a number from 0 to 100" in str(handled.error)
    assert len(str(handled.error)) < 200


async def test_nothing_has_to_be_awaited(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.progress(40)
        ctx.progress(100)

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert book.percents[-1] == 100


async def test_while_a_note_is_under_way_the_newest_value_waits_alone(book: Book) -> None:
    """However slow the database is, the handler is not."""

    async def work(event: Received[Any], ctx: Context) -> None:
        book.open.clear()
        ctx.progress(1)
        await asyncio.sleep(0.001)
        for percent in range(2, 90):
            await ctx.progress(percent)
        book.open.set()

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert (book.percents, book.most_at_once) == ([1, 89], 1)


async def test_what_was_said_before_a_stage_is_noted_before_it(book: Book) -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        book.open.clear()
        ctx.progress(10)
        ctx.progress(20)
        asyncio.get_running_loop().call_later(0.01, book.open.set)
        async with ctx.stage("upload"):
            ctx.progress(30)
        ctx.progress(40)

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert [note.what for note in book.notes] == ["progress", "stage", "progress", "stage_ended", "progress"]
    assert book.percents == [20, 30, 40]


async def test_a_thread_says_it_without_waiting(book: Book) -> None:
    """Ten thousand times, from a thread of its own too; the last value is there in the end."""

    def work(event: Received[Any], ctx: Context) -> None:
        def many() -> None:
            for step in range(10_000):
                ctx.progress(step % 90)

        other = threading.Thread(target=many)
        other.start()
        many()
        other.join(10)
        with ctx.stage("upload"):
            ctx.progress(95)
        ctx.progress(100)

    assert (await handle(consumer_of(work), "a")).fate is Fate.DONE
    assert book.percents[-2:] == [95, 100]
    assert [note.what for note in book.notes][-4:] == ["stage", "progress", "stage_ended", "progress"]
    assert book.most_at_once == 1


async def test_a_database_that_is_away_costs_the_value_and_no_work(book: Book) -> None:
    book.fault = OSError("the database is away")

    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.progress(100)

    async with in_memory(consumer_of(work)) as deliveries:
        assert (await deliveries.finish(deliveries.publish("a"))).fate is Fate.DONE
        assert [event.note for event in deliveries.events if isinstance(event, NoteLost)] == ["progress"]


async def test_a_delivery_that_is_lost_is_told_with_a_later_call(book: Book) -> None:
    """A thread cannot be cancelled: this is how it learns."""
    book.fault = LeaseLostError("somebody else has it")

    def work(event: Received[Any], ctx: Context) -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            ctx.progress(1)

    assert (await handle(consumer_of(work), "a")).code == "LeaseLostError"


async def test_it_is_told_where_no_history_is_kept() -> None:
    async def work(event: Received[Any], ctx: Context) -> None:
        ctx.progress(10)
        ctx.progress(10.25)
        ctx.progress(20)

    async with in_memory(consumer_of(work)) as deliveries:
        await deliveries.finish(deliveries.publish("a"))
        assert percents(deliveries) == [10, 20]


def percents(deliveries: Deliveries) -> list[float]:
    """What listeners were told."""
    return [event.percent for event in deliveries.events if isinstance(event, ProgressMade)]
