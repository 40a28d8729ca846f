"""Batch handlers: one call for many events, and each event's own end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from consumers import (
    ConfigurationError,
    Consumer,
    Context,
    Dead,
    Defer,
    Done,
    Fixed,
    Invalid,
    Received,
    Retry,
    Skip,
)
from consumers.events import Fate
from consumers.outdated import OutdatedError
from consumers.testing import Deliveries, handle, in_memory
from tests.support.waiting import until_async

Events = list[Received[Any]]
Contexts = list[Context]


class Calls:
    """A batch handler that can be held up, and what it was called with."""

    def __init__(self) -> None:
        self.of: list[list[Any]] = []
        self.attempts: list[list[int]] = []
        self.now = 0
        self.most = 0
        self.cancelled = 0
        self.answer: Any = lambda _: None
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, events: Events, contexts: Contexts) -> Any:
        """Called."""
        self.of.append([event.data for event in events])
        self.attempts.append([context.attempt for context in contexts])
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            return self.answer(events)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1


@pytest.fixture
def calls() -> Calls:
    """Not held up."""
    return Calls()


@asynccontextmanager
async def running(calls: Any, *, dedup: Any = "claim", **options: Any) -> AsyncIterator[Deliveries]:
    """A consumer with this batch handler, at work."""
    consumer = Consumer("push", dedup=dedup, retry=Fixed("5s", max_attempts=2), concurrency=2)
    consumer.on("push.due", **{"batch": 3, **options})(calls)
    async with in_memory(consumer) as deliveries:
        yield deliveries


async def fates_of(deliveries: Deliveries, events: list[Any]) -> list[Fate]:
    """What becomes of each next."""
    return [(await deliveries.wait_for(event)).fate for event in events]


@pytest.mark.parametrize("dedup", ["claim", "mark", "none"])
async def test_a_full_batch_is_one_call(calls: Calls, dedup: Any) -> None:
    """And what is left when nobody joins for a moment another one."""
    async with running(calls, dedup=dedup) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(7)]
        assert await fates_of(deliveries, events) == [Fate.DONE] * 7
        assert deliveries.clock.monotonic() < 0.05

    assert calls.of == [[0, 1, 2], [3, 4, 5], [6]]


async def test_a_batch_waits_for_as_long_as_events_join(calls: Calls) -> None:
    """Each that joins has it wait anew."""
    async with running(calls, batch_wait="2s") as deliveries:
        deliveries.publish("push.due", 0)
        await deliveries.advance(1.5)
        deliveries.publish("push.due", 1)
        await deliveries.advance(1.5)
        assert calls.of == []
        await deliveries.advance(0.5)
        assert calls.of == [[0, 1]]


async def test_each_event_has_the_answer_in_its_place(calls: Calls) -> None:
    """Outcomes, results, nothing, and what is to count as raised."""
    answers: dict[str, Any] = {
        "nothing": None,
        "result": {"id": 7},
        "done": Done("x"),
        "skip": Skip("no"),
        "again": Retry("later", "LATER"),
        "later": Defer("30s"),
        "dead": Dead("never"),
        "invalid": Invalid("no phone"),
        "raised": OSError("this one"),
    }
    calls.answer = lambda events: [answers[event.data] for event in events]
    async with running(calls, batch=9) as deliveries:
        events = [deliveries.publish("push.due", name) for name in answers]
        found = {name: await deliveries.wait_for(event) for name, event in zip(answers, events, strict=True)}

    assert len(calls.of) == 1
    assert {name: each.fate for name, each in found.items()} == {
        "nothing": Fate.DONE,
        "result": Fate.DONE,
        "done": Fate.DONE,
        "skip": Fate.SKIPPED,
        "again": Fate.RETRIED,
        "later": Fate.DEFERRED,
        "dead": Fate.DEAD,
        "invalid": Fate.INVALID,
        "raised": Fate.RETRIED,
    }
    assert (found["raised"].code, found["again"].code) == ("OSError", "LATER")


async def test_a_context_defers_its_own_event_alone() -> None:
    """The others are done."""

    async def send(events: Events, contexts: Contexts) -> None:
        contexts[1].defer("30s")

    async with running(send) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(3)]
        assert await fates_of(deliveries, events) == [Fate.DONE, Fate.DEFERRED, Fate.DONE]


async def test_what_it_raises_counts_for_each(calls: Calls) -> None:
    """Each has its own next attempt, and its own last one."""

    def fail(events: Events) -> None:
        raise OSError("the provider is away")

    calls.answer = fail
    async with running(calls, batch=2) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(2)]
        assert await fates_of(deliveries, events) == [Fate.RETRIED] * 2
        calls.answer = lambda _: [None, Retry("once more")]
        await deliveries.advance(5.1)
        assert await fates_of(deliveries, events) == [Fate.DONE, Fate.DEAD]

    assert calls.attempts == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "was called with 2 and answered for 0"),
        ([None] * 3, "was called with 2 and answered for 3"),
        ("ok", "was called with 2 and answered with a str"),
        ({"a": 1, "b": 2}, "answered with a dict"),
    ],
)
async def test_a_wrong_answer_is_an_error_for_each(calls: Calls, answer: Any, words: str) -> None:
    """It is tried again, and says what is wrong."""
    calls.answer = lambda _: answer
    async with running(calls, batch=2) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(2)]
        found = [await deliveries.wait_for(event) for event in events]

    assert {(each.fate, each.code) for each in found} == {(Fate.RETRIED, "UsageError")}
    assert all(words in each.reason for each in found)


async def test_one_events_outdated_error_does_not_skip_the_others(calls: Calls) -> None:
    """It says nothing about them."""

    def outdated(events: Events) -> None:
        raise OutdatedError("changed", "one of them")

    calls.answer = outdated
    async with running(calls, batch=2) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(2)]
        found = [await deliveries.wait_for(event) for event in events]

    assert {(each.fate, each.code) for each in found} == {(Fate.RETRIED, "UsageError")}


async def test_an_event_that_does_not_fit_is_not_in_the_batch(calls: Calls) -> None:
    """It is invalid by itself."""
    async with running(calls, batch=2, model=int) as deliveries:
        events = [deliveries.publish("push.due", data) for data in (1, "x", 2)]
        assert await fates_of(deliveries, events) == [Fate.DONE, Fate.INVALID, Fate.DONE]

    assert calls.of == [[1, 2]]


async def test_so_many_calls_run_at_once_and_take_no_permit_from_others(calls: Calls) -> None:
    """Two of a batch handler, beside two single ones: all that the consumer's concurrency allows."""
    calls.go.clear()
    single = asyncio.Event()
    now: list[int] = [0, 0]
    consumer = Consumer("push", concurrency=2)
    consumer.on("push.due", batch=3, concurrency=2)(calls)

    @consumer.on("order.*")
    async def order(event: Received[Any]) -> None:
        now[0] += 1
        now[1] = max(now)
        await single.wait()
        now[0] -= 1

    async with in_memory(consumer) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(9)]
        events += [deliveries.publish("order.paid") for _ in range(5)]
        await deliveries.advance(1.0)
        assert (calls.now, now[0]) == (2, 2)
        calls.go.set()
        single.set()
        assert await fates_of(deliveries, events) == [Fate.DONE] * 14

    assert (calls.most, now[1]) == (2, 2)
    assert calls.of == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


async def test_time_begins_with_the_call_and_ends_for_all_of_it(calls: Calls) -> None:
    """Who waits for the call before has not begun; when the last one has left, the function is cancelled."""
    calls.go.clear()
    async with running(calls, batch=2, timeout="10s", concurrency=1) as deliveries:
        first = [deliveries.publish("push.due", n) for n in range(2)]
        await deliveries.advance(6.0)
        second = deliveries.publish("push.due", 2)
        await deliveries.advance(5.0)
        assert await fates_of(deliveries, first) == [Fate.RETRIED] * 2
        assert calls.cancelled == 1
        await deliveries.advance(1.0)
        assert calls.of == [[0, 1], [2]]
        calls.go.set()
        assert await fates_of(deliveries, [second]) == [Fate.DONE]


async def test_an_order_is_kept_per_key(calls: Calls) -> None:
    """Of a key, one event is in a batch at a time."""
    async with running(calls, batch=4) as deliveries:
        events = [deliveries.publish("push.due", n, ordering_key=f"k{n % 2}") for n in range(4)]
        assert await fates_of(deliveries, events) == [Fate.DONE] * 4

    assert calls.of == [[0, 1], [2, 3]]


async def test_a_plain_function_is_called_in_one_thread_for_all() -> None:
    """With as many arguments as it takes."""
    seen: list[tuple[str, list[Any]]] = []

    def send(events: Events) -> list[Any]:
        seen.append((threading.current_thread().name, [event.data for event in events]))
        return [Skip("odd") if event.data % 2 else None for event in events]

    async with running(send) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(3)]
        assert await fates_of(deliveries, events) == [Fate.DONE, Fate.SKIPPED, Fate.DONE]

    ((name, data),) = seen
    assert name.startswith("push-handler")
    assert data == [0, 1, 2]


async def test_a_stop_lets_a_batch_end_and_releases_what_is_late(calls: Calls) -> None:
    """Uncounted, as any handler that is cut short; it comes again as its first attempt."""
    calls.go.clear()
    async with running(calls, timeout=None) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(3)]
        await deliveries.advance(1.0)
        await deliveries.stop()
        assert calls.cancelled == 1
        assert await fates_of(deliveries, events) == [Fate.RELEASED] * 3
        calls.go.set()
        await deliveries.restart()
        assert await fates_of(deliveries, events) == [Fate.DONE] * 3

    assert calls.attempts == [[1, 1, 1]] * 2


async def test_who_waits_for_a_thread_is_released_at_the_end() -> None:
    """It was not begun; what the thread has keeps its lease, for nobody knows what it does."""
    open_, called = threading.Event(), list[int]()

    def send(events: Events) -> None:
        called.append(len(events))
        open_.wait(10)

    async def is_called() -> bool:
        await deliveries.advance(0.1)
        return bool(called)

    async with running(send, batch=3, concurrency=1) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(2)]
        await until_async(is_called, "the call")
        events.append(deliveries.publish("push.due", 2))
        await deliveries.advance(0.1)
        abandoned = await deliveries.stop()
        open_.set()
        assert len(abandoned) == 3
        assert deliveries.fates(events[2]) == [Fate.RELEASED]
        assert [deliveries.fates(event) for event in events[:2]] == [[], []]

    assert called == [2]


async def test_a_lost_lease_takes_its_event_out_of_the_batch(calls: Calls) -> None:
    """The function goes on for the others."""
    calls.go.clear()
    consumer = Consumer("push", timeout=None)
    consumer.on("push.due", batch=2)(calls)
    async with in_memory(consumer) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(2)]
        await deliveries.advance(0.1)
        deliveries.weather.store_away = True
        await deliveries.advance(3600.0)
        deliveries.weather.store_away = False
        assert calls.cancelled == 1  # both are gone
        assert await fates_of(deliveries, events) == [Fate.LEASE_LOST] * 2
        calls.go.set()


async def test_one_event_is_tried_by_itself_in_a_test(calls: Calls) -> None:
    """As a batch of one."""
    calls.answer = lambda _: [Skip("no")]
    consumer = Consumer("push")
    consumer.on("push.due", batch=100)(calls)
    handled = await handle(consumer, "push.due", 7)
    assert (handled.fate, calls.of) == (Fate.SKIPPED, [[7]])

    plain = Consumer("push")

    @plain.on("push.due", batch=5)
    def fail(events: Events) -> list[BaseException]:
        return [OSError("no")]

    assert (await handle(plain, "push.due", 7)).code == "OSError"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "has batch=0; write for how many"),
        ({"batch": True}, "has batch=True"),
        ({"batch": 1_001}, "1 to 1000"),
        ({"batch": 2, "batch_wait": "soon"}, "batch_wait "),
        ({"batch": 2, "batch_wait": "1m"}, "write up to 10 s"),
        ({"batch": 2, "concurrency": 0}, "concurrency is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    """With the value, and what to write."""
    with pytest.raises(ConfigurationError, match=words):
        Consumer("push").on("push.due", **options)(lambda _: None)


def test_a_batch_handler_takes_a_list() -> None:
    """The sentence about its arguments says so; one at a time unless it says otherwise, whatever the process has."""
    consumer = Consumer("push")
    with pytest.raises(ConfigurationError, match=r"has to take \(events\) or \(events, context\)"):
        consumer.on("push.due", batch=2)(lambda: None)
    consumer.on("push.due", batch=2)(lambda _: None)
    (handler,) = consumer.handlers.all()
    assert (handler.concurrency, handler.most, "concurrency" in handler.left_open) == (1, 2, False)
