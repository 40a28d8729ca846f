"""What users test their handlers with says what production would do."""

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

import consumers.testing
from consumers import Consumer, Context, Done, FatalError, Fixed, Received, TransientError
from consumers.testing import FakeClock, Fate, handle, in_memory, prove_idempotent
from consumers.testing import deliveries as module
from relay.envelope import Message

PAGE = Path(__file__).parents[3] / "docs" / "testing-handlers.md"


def state_of(event: Received[Any], ctx: Context) -> Any:
    return ctx.state


def nothing(event: Received[Any]) -> None:
    """An effect that is none."""


def a_message(event_type: str, data: Any) -> Message:
    """As the publisher makes it of a row."""
    event_id = str(uuid4())
    body = {
        "event_id": event_id,
        "event_type": event_type,
        "version": 1,
        "occurred_at": "2026-01-02T03:04:05.000006Z",
        "actor": None,
        "data": data,
    }
    attributes = {"event_id": event_id, "event_type": event_type, "sequence": "7", "tenant": "acme"}
    return Message(json.dumps(body).encode(), attributes, 512, "c-1")


class Paid(BaseModel):
    """What an order's payment is made of."""

    cents: int


@pytest.fixture
def consumer() -> Consumer:
    """One handler in the loop, and one in a thread."""
    billing = Consumer("billing")

    @billing.on("order.paid", version=2, model=Paid)
    async def book(event: Received[Paid], ctx: Context) -> Done:
        if event.data.cents < 0:
            raise FatalError("less than nothing", "NEGATIVE")
        if event.data.cents == 0:
            raise TransientError("nothing yet")
        return Done({"booked": event.data.cents, "state": ctx.state})

    billing.upcast("order.paid", from_version=1)(lambda data: {"cents": data["euros"] * 100})
    billing.on("order.shipped")(lambda event: {"shipped": event.data})
    return billing


class TestHandle:
    """One event in one line."""

    async def test_says_what_the_handler_returned_and_what_it_received(self, consumer: Consumer) -> None:
        handled = await handle(consumer, "order.paid", {"cents": 7}, version=2, state="s", aggregate_id="o-1")
        assert (handled.fate, handled.attempt) == (Fate.DONE, 1)
        assert handled.result == {"booked": 7, "state": "s"}
        assert handled.event is not None
        assert (handled.event.data, handled.event.aggregate_id) == (Paid(cents=7), "o-1")
        assert (handled.dead_letters, handled.error, handled.again_in) == ((), None, None)

    async def test_takes_older_versions_through_upcasters(self, consumer: Consumer) -> None:
        assert (await handle(consumer, "order.paid", {"euros": 7})).event.data == Paid(cents=700)  # type: ignore[union-attr]

    async def test_runs_plain_functions_in_their_thread(self, consumer: Consumer) -> None:
        assert (await handle(consumer, "order.shipped", "today")).result == {"shipped": "today"}

    async def test_says_what_was_raised_and_what_comes_of_it(self, consumer: Consumer) -> None:
        dead = await handle(consumer, "order.paid", {"cents": -1}, version=2)
        assert (dead.fate, dead.code, type(dead.error)) == (Fate.DEAD, "NEGATIVE", FatalError)
        assert [letter.code for letter in dead.dead_letters] == ["NEGATIVE"]
        retried = await handle(consumer, "order.paid", {"cents": 0}, version=2)
        assert (retried.fate, retried.again_in) == (Fate.RETRIED, 5)

    async def test_says_that_the_model_refused_the_data(self, consumer: Consumer) -> None:
        handled = await handle(consumer, "order.paid", {"cents": "x"}, version=2)
        assert (handled.fate, handled.code, handled.event) == (Fate.INVALID, "INVALID_DATA", None)

    async def test_says_that_nobody_is_meant(self, consumer: Consumer) -> None:
        assert (await handle(consumer, "order.lost")).fate is Fate.UNHANDLED
        for_another = {"replayed_for": "shipping"}
        assert (await handle(consumer, "order.shipped", attributes=for_another)).fate is Fate.NOT_MEANT

    @pytest.mark.parametrize("mode", ["mark", "claim", "none"])
    async def test_can_be_the_last_attempt(self, mode: Any) -> None:
        consumer = Consumer("billing", dedup=mode, retry=Fixed("5s", max_attempts=3))
        seen = []

        @consumer.on("order.paid")
        async def fail(event: Received[Any], ctx: Context) -> None:
            seen.append(ctx.attempt)
            raise TransientError("no")

        assert (await handle(consumer, "order.paid", attempt=2)).fate is Fate.RETRIED
        assert (await handle(consumer, "order.paid", attempt=3)).fate is Fate.DEAD
        assert seen == [2, 3]

    @pytest.mark.parametrize("mode", ["mark", "claim", "none"])
    async def test_takes_a_message_as_a_relay_published_it(self, mode: Any) -> None:
        consumer = Consumer("billing", dedup=mode, retry=Fixed("5s", max_attempts=3))

        @consumer.on("order.paid")
        async def book(event: Received[Any], ctx: Context) -> Any:
            return (event.data, event.ordering_key, event.attributes["tenant"], ctx.attempt)

        message = a_message("order.paid", {"cents": 7})
        assert (await handle(consumer, message)).result == ({"cents": 7}, "c-1", "acme", 1)
        assert (await handle(consumer, message, attempt=2)).result == ({"cents": 7}, "c-1", "acme", 2)
        assert (await handle(consumer, message._replace(body=b"{"))).fate is Fate.UNDECODABLE
        with pytest.raises(TypeError, match="a message has its own data and fields"):
            await handle(consumer, message, {"cents": 8})  # type: ignore[call-overload]

    async def test_keeps_the_lifespan_unless_a_state_is_given(self) -> None:
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[str]:
            yield "of the lifespan"

        consumer = Consumer("billing", lifespan=lifespan)
        consumer.on("a")(state_of)
        assert (await handle(consumer, "a")).result == "of the lifespan"
        assert (await handle(consumer, "a", state=None)).result is None

    async def test_leaves_the_consumer_as_it_is(self, consumer: Consumer) -> None:
        before = consumer.handlers.all()
        await handle(consumer, "order.shipped")
        assert consumer.handlers.all() == before
        assert consumer.lifespan is None


class TestTheClock:
    """Stands still, and goes through everything that is due when it is moved."""

    async def test_begins_where_it_is_told_and_moves_as_far_as_it_is_told(self) -> None:
        clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        await clock.advance(timedelta(hours=1, seconds=0.5))
        assert clock.now() == datetime(2026, 1, 1, 1, 0, 0, 500_000, tzinfo=UTC)

    async def test_comes_to_the_same_end_by_many_steps_as_by_one(self) -> None:
        many, one, over = FakeClock(), FakeClock(), list[FakeClock]()
        for clock in (many, one):
            clock.call_later(12.0, over.append, clock)
        for _ in range(120):
            await many.advance(0.1)
        await one.advance(12)
        assert over == [many, one]

    async def test_goes_through_what_is_due_in_its_order_and_at_its_time(self) -> None:
        clock, seen = FakeClock(), list[Any]()

        async def every(seconds: float) -> None:
            for _ in range(3):
                await clock.sleep(seconds)
                seen.append((seconds, clock.monotonic()))

        tasks = [asyncio.create_task(every(seconds)) for seconds in (2, 3)]
        await clock.advance(100)
        await asyncio.gather(*tasks)
        assert [moment for _, moment in seen] == [2, 3, 4, 6, 6, 9]

    async def test_has_timeouts_that_are_those_of_asyncio(self) -> None:
        clock = FakeClock()

        async def late() -> str:
            try:
                async with clock.timeout(5):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "late"
            return "in time"

        task = asyncio.create_task(late())
        await clock.advance(4.999)
        assert not task.done()
        await clock.advance(0.001)
        assert (await task, task.cancelling()) == ("late", 0)
        async with clock.timeout(5) as limit:
            pass
        await clock.advance(10)
        assert not limit.expired()

    async def test_waits_for_an_event_or_the_end_of_the_time(self) -> None:
        clock, event = FakeClock(), asyncio.Event()
        waits = [asyncio.create_task(clock.wait(event, seconds)) for seconds in (5, 50)]
        await clock.advance(5)
        event.set()
        assert [await wait for wait in waits] == [False, True]

    async def test_forgets_a_timer_that_was_cancelled(self) -> None:
        clock, seen = FakeClock(), list[Any]()
        clock.call_later(5, seen.append, 1).cancel()
        assert clock.next_due() is None
        await clock.advance(10)
        assert seen == []


class TestDeliveries:
    """The test's hand on the consumer."""

    async def test_says_when_an_event_rests_how_far_the_clock_has_to_be_moved(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.paid", {"cents": 0}, version=2)
            await deliveries.wait_for(event)
            with pytest.raises(AssertionError, match=r"retried and comes again in 5 s; .*advance\(5\)"):
                await deliveries.wait_for(event)
            with pytest.raises(AssertionError, match="nothing became of it within"):
                await deliveries.wait_for(uuid4())

    async def test_says_that_an_event_is_over(self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.shipped")
            await deliveries.finish(event)
            with pytest.raises(AssertionError, match="it was done and is over"):
                await deliveries.wait_for(event)

    async def test_fails_where_the_consumer_was_killed(self, consumer: Consumer) -> None:
        async with in_memory(consumer) as deliveries:
            await deliveries.crash()
            event = deliveries.publish("order.shipped")
            with pytest.raises(AssertionError, match="restart"):
                await deliveries.wait_for(event)
            await deliveries.restart()
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

    async def test_delivers_again_what_a_killed_process_held(self, consumer: Consumer) -> None:
        go = asyncio.Event()

        @consumer.on("slow")
        async def slow(event: Received[Any]) -> None:
            await go.wait()

        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("slow")
            await deliveries.advance(0)
            await deliveries.crash()
            go.set()
            await deliveries.restart()
            assert (await deliveries.finish(event)).fate is Fate.DONE
            assert deliveries.fates(event)[0] is Fate.BUSY
            assert deliveries.clock.monotonic() == pytest.approx(60)

    async def test_repeats_an_event_under_another_message_id(self, consumer: Consumer) -> None:
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.shipped")
            deliveries.repeat(event)
            await deliveries.drain()
            assert {settled.subject.message_id for settled in deliveries.settled} == {"m-1", "m-2"}

    async def test_delivers_a_message_as_a_relay_published_it(self, consumer: Consumer) -> None:
        message = a_message("order.shipped", "today")
        async with in_memory(consumer) as deliveries:
            assert (await deliveries.deliver(message)).fate is Fate.DONE
            assert (await deliveries.deliver(message)).fate is Fate.DUPLICATE


class TestTheProof:
    """Finds the place where an effect is repeated, and no other."""

    async def test_holds_for_a_handler_that_looks_before_it_acts(self) -> None:
        consumer, booked = Consumer("billing"), dict[str, int]()

        @consumer.on("order.paid")
        async def book(event: Received[Any]) -> None:
            await asyncio.sleep(0)
            booked[str(event.event_id)] = event.data
            await asyncio.sleep(0)

        proof = await prove_idempotent(
            consumer, [("order.paid", 1), ("order.paid", 2)], effects=booked.copy, reset=booked.clear
        )
        assert proof.holds
        assert str(proof) == f"{proof.runs} runs, each with the effects of one delivery"

    async def test_names_each_place_where_the_effect_is_there_and_not_yet_written_down(self) -> None:
        consumer, booked = Consumer("billing"), list[Any]()

        @consumer.on("order.paid")
        async def book(event: Received[Any]) -> None:
            await asyncio.sleep(0)
            booked.append(event.data)
            await asyncio.sleep(0)

        proof = await prove_idempotent(consumer, [("order.paid", 1)], effects=booked.copy, reset=booked.clear, orders=2)
        assert [failure.run for failure in proof.failures] == [
            "killed while the handler of event 1 (order.paid) waited, at its await 2 of 2",
            "killed when the handler of event 1 (order.paid) had returned, before its completion was written",
        ]
        assert {(failure.duplicates, failure.missing) for failure in proof.failures} == {(1, 0)}
        assert "1 2 times instead of once" in str(proof)
        assert proof.runs == 1 + 2 + 2 + 5

    async def test_finds_that_a_mark_loses_what_a_killed_process_had_marked(self) -> None:
        consumer, booked = Consumer("billing", dedup="mark"), list[Any]()

        @consumer.on("order.paid")
        async def book(event: Received[Any]) -> None:
            await asyncio.sleep(0)
            booked.append(event.data)

        proof = await prove_idempotent(consumer, [("order.paid", 1)], effects=booked.copy, reset=booked.clear)
        assert {(failure.duplicates, failure.missing) for failure in proof.failures} == {(0, 1)}

    async def test_finds_what_depends_on_the_order(self) -> None:
        consumer, last = Consumer("billing", concurrency=1), dict[str, Any]()

        @consumer.on("order.*")
        async def note(event: Received[Any]) -> None:
            last["is"] = event.event_type

        async def effects() -> dict[str, Any]:
            return last

        events = [("order.placed", None), ("order.paid", None)]
        proof = await prove_idempotent(consumer, events, effects=effects, reset=last.clear, orders=10)
        assert not proof.holds
        assert all("in the order" in failure.run for failure in proof.failures if "twice" in failure.run)

    async def test_keeps_the_order_of_a_key(self) -> None:
        consumer, last = Consumer("billing"), dict[str, Any]()

        @consumer.on("order.*")
        async def note(event: Received[Any]) -> None:
            last["is"] = event.event_type

        events = [{"event_type": f"order.{name}", "ordering_key": "o-1"} for name in ("placed", "paid", "shipped")]
        proof = await prove_idempotent(consumer, events, effects=last.copy, reset=last.clear, orders=10)
        assert proof.holds, proof

    async def test_kills_plain_functions_before_and_after(self) -> None:
        consumer, booked = Consumer("billing"), list[Any]()
        consumer.on("order.paid")(lambda event: booked.append(event.data))
        proof = await prove_idempotent(consumer, [("order.paid", 1)], effects=booked.copy, reset=booked.clear)
        assert [failure.run for failure in proof.failures] == [
            "killed when the handler of event 1 (order.paid) had returned, before its completion was written"
        ]

    async def test_rolls_back_what_a_killed_handler_has_open(self) -> None:
        consumer, booked = Consumer("billing"), set[Any]()

        @asynccontextmanager
        async def transaction() -> AsyncIterator[set[Any]]:
            rows = set(booked)
            yield rows
            booked.update(rows)

        @consumer.on("order.paid")
        async def book(event: Received[Any]) -> None:
            async with transaction() as rows:
                rows.add(event.event_id)
                await asyncio.sleep(0)

        proof = await prove_idempotent(consumer, [("order.paid", 1)], effects=booked.copy, reset=booked.clear)
        assert proof.holds, proof

    async def test_refuses_events_that_have_no_effect_by_themselves(self) -> None:
        consumer = Consumer("billing")
        consumer.on("order.paid")(nothing)
        with pytest.raises(ValueError, match="some events were unhandled"):
            await prove_idempotent(consumer, [("order.lost", 1)], effects=list, reset=list)
        with pytest.raises(ValueError, match="there are no events"):
            await prove_idempotent(consumer, [], effects=list, reset=list)


def test_the_public_surface_is_what_it_says() -> None:
    for name in consumers.testing.__all__:
        assert getattr(consumers.testing, name).__doc__
        assert not name.startswith(("Test", "test"))


def _examples() -> dict[str, Any]:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    names: dict[str, Any] = {"__name__": "consumers_example"}
    exec(compile(ast.parse(code), str(PAGE), "exec"), names)  # noqa: S102 -- our own page
    return names


EXAMPLES = _examples()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("test_")])
async def test_an_example_of_the_page_works(name: str) -> None:
    await EXAMPLES[name]()
