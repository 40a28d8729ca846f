"""The road of a delivery: the table of the module `consumers.pipeline`, row by row."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, field_validator

from consumers import (
    Consumer,
    Context,
    Dead,
    Defer,
    Done,
    FatalError,
    Fixed,
    Invalid,
    Received,
    Retry,
    Skip,
    TransientError,
)
from consumers.events import (
    DeadLetterFailed,
    Fate,
    OutcomeIgnored,
    PipelineFault,
    StoreAway,
    StoreBack,
)
from consumers.received import Undecodable
from consumers.testing import Deliveries, in_memory

ModeName = Literal["mark", "claim", "none"]
MODES: list[ModeName] = ["mark", "claim", "none"]
DEDUPLICATING: list[ModeName] = ["mark", "claim"]
Answer = Callable[[Received[Any], Context], Awaitable[Any]]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> ModeName:
    chosen: ModeName = request.param
    return chosen


def consumer_of(mode: ModeName, answer: Answer, **how: Any) -> Consumer:
    """A consumer whose handler of `order.paid` answers so."""
    consumer = Consumer("billing", dedup=mode, **how)
    consumer.on("order.paid")(answer)
    return consumer


def told(deliveries: Deliveries, kind: type) -> list[Any]:
    return [event for event in deliveries.events if isinstance(event, kind)]


async def nothing(event: Received[Any], ctx: Context) -> None:
    """An effect without fault."""


class TestAnUndecodableMessage:
    """Dead-letter with the reason, then ack; if that publish fails, no ack."""

    async def test_goes_to_the_dead_letters_with_the_reason_and_is_acknowledged(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            message = deliveries.publish_raw(b"{}", {"event_type": "order.paid", "own": "x"})
            settled = await deliveries.wait_for(message)
            assert settled.fate is Fate.UNDECODABLE
            (dead,) = deliveries.dead_letters
            assert (dead.code, dead.body) == ("UNDECODABLE", b"{}")
            assert "event_id: Field required" in dead.reason
            assert dead.original_attributes == {"event_type": "order.paid", "own": "x"}
            assert deliveries.pending == 0

    async def test_is_not_acknowledged_while_the_dead_letter_topic_is_away(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            deliveries.weather.dead_letters_away = True
            message = deliveries.publish_raw(b"no JSON")
            await deliveries.advance(100)
            assert deliveries.pending == 1
            assert deliveries.fates(message) == []
            assert len(told(deliveries, DeadLetterFailed)) > 1
            deliveries.weather.dead_letters_away = False
            assert (await deliveries.finish(message)).fate is Fate.UNDECODABLE
            assert len(deliveries.dead_letters) == 1

    async def test_asks_no_store(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            deliveries.weather.store_away = True
            assert (await deliveries.wait_for(deliveries.publish_raw(b""))).fate is Fate.UNDECODABLE

    async def test_that_comes_again_for_another_consumer_is_not_buried_here(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            message = deliveries.publish_raw(b"no JSON", {"replayed_for": "shipping"})
            assert (await deliveries.wait_for(message)).fate is Fate.NOT_MEANT
            assert deliveries.dead_letters == []


class TestAVersionThatNoHandlerKnowsYet:
    """Transient: producers may deploy first; dead-letter after the maximum."""

    async def test_comes_again_and_costs_an_attempt(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            event = deliveries.publish("order.paid", version=2)
            settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.attempt, settled.code) == (Fate.RETRIED, 1, "NEWER_VERSION")
            assert "version 2 of order.paid is newer than 1" in settled.reason

    async def test_is_a_dead_letter_after_the_maximum(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing, retry=Fixed("5s", max_attempts=3))) as deliveries:
            event = deliveries.publish("order.paid", version=2)
            assert (await deliveries.finish(event)).fate is Fate.DEAD
            assert [letter.code for letter in deliveries.dead_letters] == ["NEWER_VERSION"]
            assert deliveries.dead_letters[0].attempts == 3

    async def test_is_handled_by_the_consumer_that_is_deployed_meanwhile(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as old:
            event = old.publish("order.paid", {"a": 1}, version=2)
            await old.wait_for(event)
            store = old.store
        new = Consumer("billing")
        seen = []
        new.on("order.paid", version=2)(lambda event: seen.append(event.data))
        async with in_memory(new, clock=old.clock, store=store) as deliveries:
            deliveries.publish("order.paid", {"a": 1}, version=2, event_id=event)
            await deliveries.finish(event)
        assert seen == [{"a": 1}]


class TestAnOlderVersion:
    """Upcasters for older ones."""

    async def test_comes_to_the_handler_through_its_upcasters(self, mode: ModeName) -> None:
        consumer, seen = Consumer("billing", dedup=mode), []

        class Paid(BaseModel):
            cents: int
            currency: str

        @consumer.on("order.paid", version=3, model=Paid)
        async def book(event: Received[Paid]) -> None:
            seen.append((event.version, event.data))

        consumer.upcast("order.paid", from_version=1)(lambda data: {"cents": data["euros"] * 100})
        consumer.upcast("order.paid", from_version=2)(lambda data: {**data, "currency": "EUR"})
        async with in_memory(consumer) as deliveries:
            await deliveries.finish(deliveries.publish("order.paid", {"euros": 7}, version=1))
        assert seen == [(1, Paid(cents=700, currency="EUR"))]

    async def test_without_a_way_to_the_handler_is_a_dead_letter(self, mode: ModeName) -> None:
        consumer = Consumer("billing", dedup=mode)
        consumer.on("order.paid", version=3)(nothing)
        async with in_memory(consumer) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid", version=1))
            assert (settled.fate, settled.code) == (Fate.DEAD, "NO_UPCASTER")

    async def test_whose_upcaster_raises_is_judged_as_if_the_handler_had(self, mode: ModeName) -> None:
        consumer = Consumer("billing", dedup=mode)
        consumer.on("order.paid", version=2)(nothing)

        @consumer.upcast("order.paid", from_version=1)
        def up(data: Any) -> Any:
            raise FatalError("no such currency", "CURRENCY")

        async with in_memory(consumer) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid", version=1))
            assert (settled.fate, settled.code) == (Fate.DEAD, "CURRENCY")


class TestDataThatTheModelRefuses:
    """The event itself is wrong."""

    async def test_is_a_dead_letter_that_names_the_place_and_not_the_value(self, mode: ModeName) -> None:
        class Paid(BaseModel):
            cents: int

        consumer = Consumer("billing", dedup=mode)
        consumer.on("order.paid", model=Paid)(nothing)
        async with in_memory(consumer) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid", {"cents": "secret"}))
            assert (settled.fate, settled.code) == (Fate.INVALID, "INVALID_DATA")
            assert "cents: " in deliveries.dead_letters[0].reason
            assert "secret" not in deliveries.dead_letters[0].reason

    async def test_by_an_error_of_its_validators_is_judged_as_if_the_handler_had_raised_it(
        self, mode: ModeName
    ) -> None:
        """Pydantic takes a ValueError or an AssertionError for a refusal, and lets everything else through."""

        class Paid(BaseModel):
            currency: str

            @field_validator("currency", mode="before")
            @classmethod
            def tidy(cls, value: Any) -> Any:
                return value.strip()

        consumer = Consumer("billing", dedup=mode, retry=Fixed("5s", max_attempts=2))
        consumer.on("order.paid", model=Paid)(nothing)
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.paid", {"currency": 978})
            settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.code) == (Fate.RETRIED, "AttributeError")
            assert (await deliveries.finish(event)).fate is Fate.DEAD
            assert told(deliveries, PipelineFault) == []


class TestAnEventTypeWithNoHandler:
    """Ack, count."""

    async def test_is_acknowledged_and_counted_without_asking_the_store(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            deliveries.weather.store_away = True
            settled = await deliveries.wait_for(deliveries.publish("order.shipped"))
            assert (settled.fate, settled.attempt, deliveries.pending) == (Fate.UNHANDLED, 0, 0)
            assert deliveries.process.runtime.stats(1.0).outcomes == {"unhandled": 1}


class TestAnEventThatWasReplayedForOne:
    """It comes out of one consumer's dead letters, to a topic that many read."""

    async def test_is_acknowledged_by_the_others(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            event = deliveries.publish("order.paid", attributes={"replayed_for": "shipping"})
            assert (await deliveries.wait_for(event)).fate is Fate.NOT_MEANT
            assert deliveries.pending == 0

    async def test_is_handled_by_that_one(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            event = deliveries.publish("order.paid", attributes={"replayed_for": "billing"})
            assert (await deliveries.wait_for(event)).fate is Fate.DONE


class TestADuplicateOfACompletedEvent:
    """Ack, count."""

    @pytest.mark.parametrize("mode", DEDUPLICATING, indirect=True)
    async def test_is_acknowledged_and_not_handled(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.finish(event)
            deliveries.repeat(event)
            assert (await deliveries.finish(event)).fate is Fate.DUPLICATE
            assert deliveries.pending == 0
            assert deliveries.process.runtime.stats(1.0).outcomes == {"done": 1, "duplicate": 1}

    async def test_is_handled_again_where_nothing_is_deduplicated(self) -> None:
        async with in_memory(consumer_of("none", nothing)) as deliveries:
            event = deliveries.publish("order.paid")
            deliveries.repeat(event)
            await deliveries.drain()
            assert deliveries.fates(event) == [Fate.DONE, Fate.DONE]

    @pytest.mark.parametrize("mode", DEDUPLICATING, indirect=True)
    async def test_is_a_new_event_when_the_mark_has_expired(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.finish(event)
        deliveries.clock._now += 720 * 3600 << 20  # nothing runs: no need to go through the hours
        async with in_memory(consumer_of(mode, nothing), clock=deliveries.clock, store=deliveries.store) as later:
            later.publish("order.paid", event_id=event)
            assert (await later.finish(event)).fate is Fate.DONE

    async def test_follows_the_first_one_in_one_process(self, mode: ModeName) -> None:
        """Two deliveries of one event are worked on one after the other, whatever the mode."""
        go, running, most = asyncio.Event(), 0, 0

        async def slow(event: Received[Any], ctx: Context) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await go.wait()
            running -= 1

        async with in_memory(consumer_of(mode, slow)) as deliveries:
            event = deliveries.publish("order.paid")
            deliveries.repeat(event)
            await deliveries.advance(1)
            assert (running, deliveries.process.runtime.stats(1.0).waiting) == (1, 1)
            go.set()
            await deliveries.drain()
            assert most == 1
            assert Fate.BUSY not in deliveries.fates(event)


class TestAnEventInProgressElsewhere:
    """Never ack: defer by its remaining lease."""

    async def test_is_looked_at_again_until_the_lease_is_over_and_never_acknowledged(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            event = uuid4()
            await deliveries.store.claim("billing", event)
            deliveries.publish("order.paid", event_id=event)
            await deliveries.advance(59)
            assert set(deliveries.fates(event)) == {Fate.BUSY}
            assert deliveries.pending == 1
            await deliveries.advance(1)
            assert deliveries.fates(event)[-1] is Fate.DONE

    async def test_is_looked_at_soon_and_then_less_often(self) -> None:
        """Whoever has it may end long before its lease does, and the store is not asked without end."""
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            event = uuid4()
            await deliveries.store.claim("billing", event)
            deliveries.publish("order.paid", event_id=event)
            await deliveries.advance(59)
            pauses = [settled.again_in for settled in deliveries.settled]
            assert pauses[:5] == [0.25, 0.5, 1.0, 2.0, 4.0]
            assert len(pauses) < 10

    async def test_costs_no_attempt(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            event = uuid4()
            claim = await deliveries.store.claim("billing", event)
            deliveries.publish("order.paid", event_id=event)
            await deliveries.advance(10)
            await deliveries.store.release(claim, counted=False)  # type: ignore[arg-type]
            assert (await deliveries.finish(event)).attempt == 1

    async def test_is_not_marked_under_somebody_elses_claim(self) -> None:
        async with in_memory(consumer_of("mark", nothing)) as deliveries:
            event = uuid4()
            await deliveries.store.claim("billing", event)
            deliveries.publish("order.paid", event_id=event)
            assert (await deliveries.wait_for(event)).fate is Fate.BUSY


class TestTheStoreDown:
    """Fail closed: throttle, redeliver later."""

    @pytest.mark.parametrize("mode", DEDUPLICATING, indirect=True)
    async def test_nothing_is_begun_and_nothing_is_acknowledged(self, mode: ModeName) -> None:
        handled: list[UUID] = []

        async def note(event: Received[Any], ctx: Context) -> None:
            handled.append(event.event_id)

        async with in_memory(consumer_of(mode, note)) as deliveries:
            deliveries.weather.store_away = True
            events = [deliveries.publish("order.paid") for _ in range(20)]
            await deliveries.advance(60)
            assert (handled, deliveries.pending) == ([], 20)
            assert not deliveries.process.runtime.receiving
            assert {fate for event in events for fate in deliveries.fates(event)} == {Fate.HELD}
            deliveries.weather.store_away = False
            await deliveries.drain()
            assert sorted(handled) == sorted(events)
            assert deliveries.process.runtime.receiving

    async def test_is_told_once_for_each_look_and_once_when_it_is_back(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            deliveries.weather.store_away = True
            for _ in range(20):
                deliveries.publish("order.paid")
            await deliveries.advance(0.2)
            assert len(told(deliveries, StoreAway)) == 1
            await deliveries.advance(60)
            assert 10 < len(told(deliveries, StoreAway)) < 20
            deliveries.weather.store_away = False
            await deliveries.drain()
            assert len(told(deliveries, StoreBack)) == 1

    async def test_costs_no_attempt(self) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            deliveries.weather.store_away = True
            event = deliveries.publish("order.paid")
            await deliveries.advance(60)
            deliveries.weather.store_away = False
            assert (await deliveries.finish(event)).attempt == 1

    async def test_everybody_works_at_once_when_it_is_back(self) -> None:
        """Not one after the other, because one look had found the store."""
        go = asyncio.Event()

        async def slow(event: Received[Any], ctx: Context) -> None:
            await go.wait()

        async with in_memory(consumer_of("claim", slow)) as deliveries:
            deliveries.weather.store_away = True
            for _ in range(10):
                deliveries.publish("order.paid")
            await deliveries.advance(1)
            deliveries.weather.store_away = False
            await deliveries.advance(6)
            assert deliveries.process.runtime.stats(1.0).running == 10
            go.set()


class TestAHandlerThatReturns:
    """Complete and ack."""

    async def test_is_done(self, mode: ModeName) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid"))
            assert (settled.fate, settled.attempt, deliveries.pending) == (Fate.DONE, 1, 0)

    async def test_with_a_skip_is_completed_and_counted_apart(self, mode: ModeName) -> None:
        async def skip(event: Received[Any], ctx: Context) -> Skip:
            return Skip("not ours")

        async with in_memory(consumer_of(mode, skip)) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid"))
            assert (settled.fate, settled.reason, deliveries.pending) == (Fate.SKIPPED, "not ours", 0)

    @pytest.mark.parametrize("answer", [{"total": 3}, Done({"total": 3})])
    async def test_has_its_result_kept_with_the_claim(self, answer: object) -> None:
        async def total(event: Received[Any], ctx: Context) -> object:
            return answer

        async with in_memory(consumer_of("claim", total)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.finish(event)
            kept = await deliveries.store.claim("billing", event)
            assert json.loads(kept.result) == {"total": 3}  # type: ignore[union-attr,arg-type]

    async def test_with_a_result_that_is_no_json_is_done_all_the_same(self, mode: ModeName) -> None:
        """The effect is there: to have it come again for the sake of its result would repeat it."""

        async def row(event: Received[Any], ctx: Context) -> object:
            return object()

        async with in_memory(consumer_of(mode, row)) as deliveries:
            event = deliveries.publish("order.paid")
            assert (await deliveries.wait_for(event)).fate is Fate.DONE
            assert (deliveries.pending, told(deliveries, PipelineFault)) == (0, [])

    async def test_is_completed_again_and_again_while_the_store_is_away(self) -> None:
        """The effect is there, and nobody repeats it meanwhile."""
        handled = 0

        async def book(event: Received[Any], ctx: Context) -> None:
            nonlocal handled
            handled += 1
            deliveries.weather.store_away = True

        async with in_memory(consumer_of("claim", book)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(20)
            assert (deliveries.fates(event), deliveries.pending) == ([], 1)
            deliveries.weather.store_away = False
            settled = await deliveries.finish(event)
            assert (settled.fate, handled, deliveries.pending) == (Fate.DONE, 1, 0)

    async def test_is_done_although_its_lease_ran_out_if_nobody_took_it_over(self) -> None:
        async def book(event: Received[Any], ctx: Context) -> None:
            deliveries.weather.store_away = True

        async with in_memory(consumer_of("claim", book)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(300)
            deliveries.weather.store_away = False
            assert (await deliveries.finish(event)).fate is Fate.DONE


class TestAHandlerThatRaisesSomethingTransient:
    """Release and retry with backoff."""

    @pytest.mark.parametrize(
        "error", [TransientError("no"), RuntimeError("unknown"), OSError("away"), ExceptionGroup("two", [OSError()])]
    )
    async def test_comes_again_after_the_delay_of_its_policy(self, mode: ModeName, error: Exception) -> None:
        async def once(event: Received[Any], ctx: Context) -> None:
            if ctx.attempt == 1:
                raise error

        async with in_memory(consumer_of(mode, once, retry=Fixed("30s"))) as deliveries:
            event = deliveries.publish("order.paid")
            first = await deliveries.wait_for(event)
            assert (first.fate, first.attempt, first.again_in, first.error) == (Fate.RETRIED, 1, 30.0, error)
            await deliveries.advance(29.9)
            assert len(deliveries.fates(event)) == 1
            await deliveries.advance(0.1)
            second = await deliveries.wait_for(event)
            assert (second.fate, second.attempt) == (Fate.DONE, 2)

    async def test_may_say_when(self, mode: ModeName) -> None:
        async def later(event: Received[Any], ctx: Context) -> None:
            raise TransientError("busy", delay="2m")

        async with in_memory(consumer_of(mode, later)) as deliveries:
            assert (await deliveries.wait_for(deliveries.publish("order.paid"))).again_in == 120

    async def test_may_answer_the_same_without_raising(self, mode: ModeName) -> None:
        async def later(event: Received[Any], ctx: Context) -> Retry:
            return Retry("busy", "BUSY", timedelta(minutes=2))

        async with in_memory(consumer_of(mode, later)) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid"))
            assert (settled.fate, settled.code, settled.again_in) == (Fate.RETRIED, "BUSY", 120)

    async def test_is_a_dead_letter_after_the_last_attempt(self, mode: ModeName) -> None:
        async def never(event: Received[Any], ctx: Context) -> None:
            raise TransientError("no stock", "STOCK")

        async with in_memory(consumer_of(mode, never, retry=Fixed("5s", max_attempts=3))) as deliveries:
            event = deliveries.publish("order.paid")
            settled = await deliveries.finish(event)
            assert (settled.fate, settled.attempt, deliveries.pending) == (Fate.DEAD, 3, 0)
            assert deliveries.fates(event) == [Fate.RETRIED, Fate.RETRIED, Fate.DEAD]
            (dead,) = deliveries.dead_letters
            assert (dead.code, dead.attempts, dead.envelope["event_id"]) == ("STOCK", 3, str(event))

    async def test_rests_in_the_store_too_so_that_nobody_else_begins_it(self) -> None:
        async def never(event: Received[Any], ctx: Context) -> None:
            raise TransientError("no")

        async with in_memory(consumer_of("claim", never, retry=Fixed("30s"))) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.wait_for(event)
            answer = await deliveries.store.claim("billing", event)
            assert answer.retry_after == timedelta(seconds=30)  # type: ignore[union-attr]

    async def test_is_given_back_where_too_many_rest_here_and_counts_go_on(self) -> None:
        async def never(event: Received[Any], ctx: Context) -> None:
            raise TransientError("no")

        consumer = consumer_of("claim", never, retry=Fixed("30s", max_attempts=3))
        async with in_memory(consumer, most_resting=2) as deliveries:
            events = [deliveries.publish("order.paid") for _ in range(5)]
            await deliveries.advance(1)
            assert deliveries.process.runtime.stats(1.0).resting == 2
            assert deliveries.process.source.held_messages == 2
            await deliveries.drain()
            assert sorted(letter.event_id for letter in deliveries.dead_letters) == sorted(map(str, events))
            assert {letter.attempts for letter in deliveries.dead_letters} == {3}

    async def test_waits_for_a_consumer_that_was_away_without_losing_time(self) -> None:
        """`max_duration` counts from the first attempt, as the policies say, and not from the event's creation."""

        async def never(event: Received[Any], ctx: Context) -> None:
            raise TransientError("no")

        consumer = consumer_of("claim", never, retry=Fixed("10m", max_duration="1h"))
        async with in_memory(consumer) as deliveries:
            await deliveries.crash()
            event = deliveries.publish("order.paid")
            await deliveries.advance(timedelta(hours=5))
            await deliveries.restart()
            assert (await deliveries.wait_for(event)).fate is Fate.RETRIED
            assert (await deliveries.finish(event)).attempt == 7

    async def test_has_all_its_time_as_well_where_it_is_given_back(self) -> None:
        """A backlog is more than what may rest here, and all of it is older than `max_duration`."""

        async def never(event: Received[Any], ctx: Context) -> None:
            raise TransientError("no")

        consumer = consumer_of("claim", never, retry=Fixed("10m", max_duration="1h"))
        async with in_memory(consumer, most_resting=2) as deliveries:
            await deliveries.crash()
            events = [deliveries.publish("order.paid") for _ in range(6)]
            await deliveries.advance(timedelta(hours=5))
            await deliveries.restart()
            assert [(await deliveries.finish(event)).attempt for event in events] == [7] * 6


class TestAHandlerThatRaisesSomethingFatal:
    """Dead-letter, mark complete, ack."""

    @pytest.mark.parametrize("outcome", [FatalError("gone", "GONE"), Dead("gone", "GONE"), Invalid("gone", "GONE")])
    async def test_is_a_dead_letter_completed_and_acknowledged(self, mode: ModeName, outcome: object) -> None:
        async def fatal(event: Received[Any], ctx: Context) -> object:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        async with in_memory(consumer_of(mode, fatal)) as deliveries:
            event = deliveries.publish("order.paid", {"a": 1}, ordering_key="o-1", attributes={"tenant": "t"})
            settled = await deliveries.wait_for(event)
            assert settled.fate is (Fate.INVALID if isinstance(outcome, Invalid) else Fate.DEAD)
            assert deliveries.pending == 0
            (dead,) = deliveries.dead_letters
            assert (dead.code, dead.attempts) == ("GONE", 1)
            assert dead.reason.endswith("gone")
            assert dead.original_attributes["tenant"] == "t"
            assert dead.attributes["dead_letter_ordering_key"] == "o-1"

    @pytest.mark.parametrize("mode", DEDUPLICATING, indirect=True)
    async def test_is_not_handled_when_it_is_delivered_again(self, mode: ModeName) -> None:
        async def fatal(event: Received[Any], ctx: Context) -> None:
            raise FatalError("gone")

        async with in_memory(consumer_of(mode, fatal)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.finish(event)
            deliveries.repeat(event)
            assert (await deliveries.finish(event)).fate is Fate.DUPLICATE
            assert len(deliveries.dead_letters) == 1

    async def test_is_held_while_the_dead_letter_topic_is_away_and_not_handled_again(self, mode: ModeName) -> None:
        handled = 0

        async def fatal(event: Received[Any], ctx: Context) -> None:
            nonlocal handled
            handled += 1
            raise FatalError("gone")

        async with in_memory(consumer_of(mode, fatal)) as deliveries:
            deliveries.weather.dead_letters_away = True
            event = deliveries.publish("order.paid")
            await deliveries.advance(300)
            assert (deliveries.pending, deliveries.fates(event)) == (1, [])
            assert len(told(deliveries, DeadLetterFailed)) >= 29
            deliveries.weather.dead_letters_away = False
            assert (await deliveries.finish(event)).fate is Fate.DEAD
            assert (handled, deliveries.dead_letters[0].attempts, deliveries.pending) == (1, 1, 0)

    async def test_is_judged_once_however_many_wait_for_the_dead_letter_topic(self, mode: ModeName) -> None:
        """Given back they would come as new, and each handler would run again for as long as the topic is away."""
        handled: list[UUID] = []

        async def fatal(event: Received[Any], ctx: Context) -> None:
            handled.append(event.event_id)
            raise FatalError("gone")

        async with in_memory(consumer_of(mode, fatal), most_resting=2) as deliveries:
            deliveries.weather.dead_letters_away = True
            events = [deliveries.publish("order.paid") for _ in range(6)]
            await deliveries.advance(300)
            assert deliveries.process.source.held_messages == deliveries.pending == 6
            deliveries.weather.dead_letters_away = False
            await deliveries.drain()
            assert sorted(handled) == sorted(events)
            assert {letter.attempts for letter in deliveries.dead_letters} == {1}
            assert (len(deliveries.dead_letters), deliveries.pending) == (6, 0)


class TestADeferral:
    """Not a failure, attempt refunded, bounded."""

    @pytest.mark.parametrize("how", ["returned", "said", "answered"])
    async def test_comes_again_when_it_is_wanted_and_costs_no_attempt(self, mode: ModeName, how: str) -> None:
        times = 0

        async def later(event: Received[Any], ctx: Context) -> object:
            nonlocal times
            times += 1
            if times > 20:
                return None
            if how == "answered":
                return Defer(timedelta(seconds=30))
            deferral = ctx.defer(30)
            return deferral if how == "returned" else None

        async with in_memory(consumer_of(mode, later, retry=Fixed("5s", max_attempts=2))) as deliveries:
            event = deliveries.publish("order.paid")
            first = await deliveries.wait_for(event)
            assert (first.fate, first.again_in) == (Fate.DEFERRED, 30)
            last = await deliveries.finish(event)
            assert (last.fate, last.attempt, times) == (Fate.DONE, 1, 21)

    async def test_until_a_moment(self, mode: ModeName) -> None:
        async def tomorrow(event: Received[Any], ctx: Context) -> None:
            ctx.defer(deliveries.clock.now() + timedelta(days=1))

        async with in_memory(consumer_of(mode, tomorrow)) as deliveries:
            settled = await deliveries.wait_for(deliveries.publish("order.paid"))
            assert settled.again_in == pytest.approx(86_400)

    @pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=-5)])
    async def test_to_a_time_that_is_over_comes_at_once(self, mode: ModeName, delay: timedelta) -> None:
        times = 0

        async def now(event: Received[Any], ctx: Context) -> Defer | None:
            nonlocal times
            times += 1
            return Defer(delay) if times < 5 else None

        async with in_memory(consumer_of(mode, now)) as deliveries:
            assert (await deliveries.finish(deliveries.publish("order.paid"))).fate is Fate.DONE
            assert told(deliveries, PipelineFault) == []

    async def test_without_end_is_a_dead_letter_before_the_broker_drops_the_message(self, mode: ModeName) -> None:
        async def always(event: Received[Any], ctx: Context) -> Defer:
            return Defer(timedelta(minutes=10))

        async with in_memory(consumer_of(mode, always), retention=timedelta(hours=1)) as deliveries:
            event = deliveries.publish("order.paid")
            settled = await deliveries.finish(event)
            assert (settled.fate, settled.code) == (Fate.DEAD, "EXPIRES")
            assert settled.lag == pytest.approx(54 * 60)

    async def test_does_not_count_where_the_handler_raises(self, mode: ModeName) -> None:
        async def both(event: Received[Any], ctx: Context) -> None:
            ctx.defer(30)
            raise FatalError("gone")

        async with in_memory(consumer_of(mode, both)) as deliveries:
            assert (await deliveries.wait_for(deliveries.publish("order.paid"))).fate is Fate.DEAD


class TestATimeoutOfAnAsynchronousHandler:
    """Cancelled; counts as transient."""

    async def test_is_cancelled_and_comes_again(self, mode: ModeName) -> None:
        ended: list[str] = []

        async def hang(event: Received[Any], ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        async with in_memory(consumer_of(mode, hang, timeout="45s", retry=Fixed("5s"))) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(44.9)
            assert deliveries.fates(event) == []
            await deliveries.advance(0.1)
            settled = await deliveries.wait_for(event)
            assert (settled.fate, settled.code, settled.seconds) == (Fate.RETRIED, "TIMEOUT", 45)
            assert (settled.reason, ended) == ("timed out after 45 s", ["cancelled"])

    async def test_of_the_handlers_own_is_not_ours(self, mode: ModeName) -> None:
        async def own(event: Received[Any], ctx: Context) -> None:
            raise TimeoutError("the other side")

        async with in_memory(consumer_of(mode, own)) as deliveries:
            assert (await deliveries.wait_for(deliveries.publish("order.paid"))).code == "TimeoutError"

    async def test_can_be_without_an_end(self, mode: ModeName) -> None:
        go = asyncio.Event()

        async def long(event: Received[Any], ctx: Context) -> None:
            await go.wait()

        async with in_memory(consumer_of(mode, long, timeout=None)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(10_000)
            go.set()
            assert (await deliveries.wait_for(event)).fate is Fate.DONE


class TestALostLease:
    """The handler is cancelled, its answer ignored."""

    async def test_cancels_an_asynchronous_handler(self) -> None:
        ended: list[str] = []

        async def long(event: Received[Any], ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        async with in_memory(consumer_of("claim", long, timeout=None)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(10)
            await deliveries.store.forget("billing", event)
            await deliveries.store.claim("billing", event)
            await deliveries.advance(15)
            assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST
            assert ended == ["cancelled"]
            assert deliveries.pending == 1

    async def test_is_noticed_by_our_own_clock_where_the_store_does_not_answer(self) -> None:
        async def long(event: Received[Any], ctx: Context) -> None:
            await asyncio.Event().wait()

        async with in_memory(consumer_of("claim", long, timeout=None)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(1)
            deliveries.weather.store_away = True
            await deliveries.advance(60)
            assert deliveries.fates(event)[0] is Fate.LEASE_LOST
            deliveries.weather.store_away = False

    async def test_does_not_come_about_while_the_store_renews(self) -> None:
        go = asyncio.Event()

        async def long(event: Received[Any], ctx: Context) -> None:
            await go.wait()

        async with in_memory(consumer_of("claim", long, timeout=None)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(3_600)
            go.set()
            assert (await deliveries.wait_for(event)).fate is Fate.DONE

    async def test_leaves_a_late_answer_without_effect(self) -> None:
        async def stubborn(event: Received[Any], ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        async with in_memory(consumer_of("claim", stubborn, timeout=None)) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(10)
            await deliveries.store.forget("billing", event)
            other = await deliveries.store.claim("billing", event)
            await deliveries.advance(15)
            assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST
            assert [ignored.answer for ignored in told(deliveries, OutcomeIgnored)] == ["Done"]
            assert deliveries.pending == 1
            await deliveries.store.complete(other)  # type: ignore[arg-type]
            assert (await deliveries.finish(event)).fate is Fate.DUPLICATE

    async def test_does_not_cost_the_next_attempt_its_handler(self) -> None:
        """What was cut short once is not cut short for ever, whatever the handler made of it."""
        times = 0

        async def stubborn(event: Received[Any], ctx: Context) -> None:
            nonlocal times
            times += 1
            if times == 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise TransientError("not this time") from None

        async with in_memory(consumer_of("claim", stubborn, timeout=None, retry=Fixed("5s"))) as deliveries:
            event = deliveries.publish("order.paid")
            await deliveries.advance(10)
            await deliveries.store.forget("billing", event)
            await deliveries.advance(15)
            assert (await deliveries.finish(event)).fate is Fate.DONE
            assert deliveries.fates(event) == [Fate.RETRIED, Fate.DONE]


class TestOrder:
    """Of one key one event is worked on at a time, in the order in which they came, also across retries."""

    async def test_is_kept_behind_one_that_rests(self, mode: ModeName) -> None:
        handled: list[tuple[str, int]] = []

        async def book(event: Received[Any], ctx: Context) -> None:
            handled.append((event.data, ctx.attempt))
            if event.data == "first" and ctx.attempt < 3:
                raise TransientError("no")

        async with in_memory(consumer_of(mode, book)) as deliveries:
            for name in ("first", "second", "third"):
                deliveries.publish("order.paid", name, ordering_key="o-1")
            deliveries.publish("order.paid", "another's", ordering_key="o-2")
            await deliveries.advance(1)
            assert handled == [("first", 1), ("another's", 1)]
            await deliveries.drain()
            assert handled[2:] == [("first", 2), ("first", 3), ("second", 1), ("third", 1)]

    async def test_goes_on_behind_one_that_is_dead(self, mode: ModeName) -> None:
        handled: list[str] = []

        async def book(event: Received[Any], ctx: Context) -> None:
            handled.append(event.data)
            if event.data == "first":
                raise FatalError("never")

        async with in_memory(consumer_of(mode, book)) as deliveries:
            for name in ("first", "second"):
                deliveries.publish("order.paid", name, ordering_key="o-1")
            await deliveries.drain()
            assert handled == ["first", "second"]

    async def test_holds_across_event_types(self, mode: ModeName) -> None:
        handled: list[str] = []
        go = asyncio.Event()
        consumer = Consumer("billing", dedup=mode)

        @consumer.on("order.placed")
        async def place(event: Received[Any]) -> None:
            await go.wait()
            handled.append("placed")

        @consumer.on("order.paid")
        async def pay(event: Received[Any]) -> None:
            handled.append("paid")

        async with in_memory(consumer) as deliveries:
            deliveries.publish("order.placed", ordering_key="o-1")
            deliveries.publish("order.paid", ordering_key="o-1")
            await deliveries.advance(1)
            assert handled == []
            go.set()
            await deliveries.drain()
            assert handled == ["placed", "paid"]

    async def test_is_kept_however_many_rest(self) -> None:
        """An ordered one is never given back to make room: those behind it would come first."""
        handled: list[str] = []

        async def book(event: Received[Any], ctx: Context) -> None:
            handled.append(event.data)
            if ctx.attempt == 1:
                raise TransientError("no")

        async with in_memory(consumer_of("claim", book), most_resting=0) as deliveries:
            for name in ("first", "second"):
                deliveries.publish("order.paid", name, ordering_key="o-1")
            await deliveries.drain()
            assert handled == ["first", "first", "second", "second"]


class TestConcurrency:
    """So many at once in all, so many of a handler, in this process."""

    async def test_of_a_handler_is_its_own(self, mode: ModeName) -> None:
        running = {"slow": 0, "quick": 0}
        go = asyncio.Event()
        consumer = Consumer("billing", dedup=mode, concurrency=10)

        @consumer.on("slow", concurrency=2)
        async def slow(event: Received[Any]) -> None:
            running["slow"] += 1
            await go.wait()

        @consumer.on("quick")
        async def quick(event: Received[Any]) -> None:
            running["quick"] += 1
            await go.wait()

        async with in_memory(consumer) as deliveries:
            for _ in range(6):
                deliveries.publish("slow")
            for _ in range(6):
                deliveries.publish("quick")
            await deliveries.advance(1)
            assert running == {"slow": 2, "quick": 6}
            go.set()
            await deliveries.drain()
            assert running == {"slow": 6, "quick": 6}

    async def test_of_the_consumer_is_above_all(self, mode: ModeName) -> None:
        running = 0
        go = asyncio.Event()

        async def slow(event: Received[Any], ctx: Context) -> None:
            nonlocal running
            running += 1
            await go.wait()

        async with in_memory(consumer_of(mode, slow, concurrency=3)) as deliveries:
            for _ in range(6):
                deliveries.publish("order.paid")
            await deliveries.advance(1)
            stats = deliveries.process.runtime.stats(1.0)
            assert (running, stats.running, stats.waiting) == (3, 3, 3)
            go.set()
            await deliveries.drain()

    async def test_waiting_for_a_permit_does_not_count_against_the_timeout(self, mode: ModeName) -> None:
        async def work(event: Received[Any], ctx: Context) -> None:
            await deliveries.clock.sleep(40)

        async with in_memory(consumer_of(mode, work, concurrency=1, timeout="45s")) as deliveries:
            events = [deliveries.publish("order.paid") for _ in range(3)]
            await deliveries.advance(120)
            assert [deliveries.fates(event) for event in events] == [[Fate.DONE]] * 3


class TestThrottling:
    """Pauses this event type in this process, not the current delivery; kept even if the handler then raises."""

    @pytest.mark.parametrize("raises", [False, True])
    async def test_begins_nothing_of_the_type_for_a_while(self, mode: ModeName, raises: bool) -> None:  # noqa: FBT001
        handled: list[str] = []
        consumer = Consumer("billing", dedup=mode, concurrency=10, retry=Fixed("1s"))

        @consumer.on("order.*", concurrency=1)
        async def book(event: Received[Any], ctx: Context) -> None:
            handled.append(event.event_type)
            if event.data == "limit":
                ctx.throttle_all(60)
                if raises and ctx.attempt == 1:
                    raise TransientError("429")

        async with in_memory(consumer) as deliveries:
            limited = deliveries.publish("order.paid", "limit")
            assert (await deliveries.wait_for(limited)).fate is (Fate.RETRIED if raises else Fate.DONE)
            for _ in range(5):
                deliveries.publish("order.paid")
            deliveries.publish("order.shipped")
            await deliveries.advance(59)
            assert handled == ["order.paid", "order.shipped"]
            await deliveries.drain()
            assert handled.count("order.paid") == (7 if raises else 6)

    async def test_lets_go_of_all_at_once(self, mode: ModeName) -> None:
        running = 0
        go = asyncio.Event()

        async def book(event: Received[Any], ctx: Context) -> None:
            nonlocal running
            if event.data == "limit":
                ctx.throttle_all(60)
                return
            running += 1
            await go.wait()

        async with in_memory(consumer_of(mode, book)) as deliveries:
            await deliveries.wait_for(deliveries.publish("order.paid", "limit"))
            for _ in range(10):
                deliveries.publish("order.paid")
            await deliveries.advance(60)
            assert running == 10
            go.set()
            await deliveries.drain()


class TestABugOfOurOwn:
    """Gives the delivery back: nothing is lost, and somebody is told."""

    async def test_in_the_road_gives_the_delivery_back(self, mode: ModeName, monkeypatch: pytest.MonkeyPatch) -> None:
        async with in_memory(consumer_of(mode, nothing)) as deliveries:
            pipeline = deliveries.process.runtime._pipeline
            faulty = [True]
            complete = pipeline._complete

            async def completed(*args: Any, **named: Any) -> None:
                if faulty and faulty.pop():
                    raise RuntimeError("ours")
                await complete(*args, **named)

            monkeypatch.setattr(type(pipeline), "_complete", lambda _, *args, **named: completed(*args, **named))
            event = deliveries.publish("order.paid")
            behind = deliveries.publish("order.paid")
            await deliveries.advance(1)
            (fault,) = told(deliveries, PipelineFault)
            assert (str(fault.error), fault.subject.event_id) == ("ours", event)
            assert deliveries.fates(behind) == [Fate.DONE]
            await deliveries.drain()
            assert deliveries.fates(event)[-1] in {Fate.DONE, Fate.DUPLICATE}

    async def test_in_the_reading_of_a_message_does_not_end_the_consumer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with in_memory(consumer_of("claim", nothing)) as deliveries:
            monkeypatch.setattr("consumers.runtime.decode", lambda _: 1 / 0)
            event = deliveries.publish("order.paid")
            await deliveries.advance(1)
            (fault,) = told(deliveries, PipelineFault)
            assert isinstance(fault.subject, Undecodable)
            monkeypatch.undo()
            await deliveries.drain()
            assert deliveries.fates(event) == [Fate.DONE]


class TestFlowControl:
    """The source holds so many at most, and what it holds is counted."""

    async def test_holds_no_more_than_it_may(self, mode: ModeName) -> None:
        go = asyncio.Event()

        async def slow(event: Received[Any], ctx: Context) -> None:
            await go.wait()

        async with in_memory(consumer_of(mode, slow), max_messages=4) as deliveries:
            for _ in range(10):
                deliveries.publish("order.paid", {"x": "y" * 100})
            await deliveries.advance(1)
            stats = deliveries.process.runtime.stats(1.0)
            assert (stats.held_messages, stats.running + stats.waiting, deliveries.pending) == (4, 4, 10)
            assert stats.held_bytes > 400
            go.set()
            await deliveries.drain()
            assert deliveries.process.source.held_messages == 0


class TestAnEventThatKillsItsProcess:
    """Nobody says that it failed; what is left of its attempts does."""

    async def test_is_a_dead_letter_when_its_attempts_are_used_up(self) -> None:
        async def kill(event: Received[Any]) -> None:
            await asyncio.Event().wait()

        consumer = Consumer("billing", retry=Fixed("1s", max_attempts=3), timeout=None)
        consumer.on("order.paid")(kill)
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.paid")
            for _ in range(3):
                await deliveries.advance(0)
                await deliveries.crash()
                await deliveries.restart()
                await deliveries.advance(61)
            (letter,) = deliveries.dead_letters
            assert (letter.event_id, letter.code, letter.attempts) == (str(event), "RETRIES_EXHAUSTED", 3)
            assert (deliveries.fates(event)[-1], deliveries.pending) == (Fate.DEAD, 0)

    async def test_is_tried_for_ever_where_attempts_are_without_end(self) -> None:
        attempts: list[int] = []

        async def kill(event: Received[Any], ctx: Context) -> None:
            attempts.append(ctx.attempt)
            await asyncio.Event().wait()

        consumer = Consumer("billing", retry=Fixed("1s", max_attempts=-1), timeout=None)
        consumer.on("order.paid")(kill)
        async with in_memory(consumer) as deliveries:
            deliveries.publish("order.paid")
            for _ in range(20):
                await deliveries.advance(0)
                await deliveries.crash()
                await deliveries.restart()
                await deliveries.advance(61)
            assert attempts[:20] == list(range(1, 21))
            assert not deliveries.dead_letters


class TestALeaseThatCannotBeRenewed:
    """Whatever keeps the store from answering, the handler ends when its lease does by our own clock."""

    @pytest.mark.parametrize("how", ["store_away", "store_hangs"])
    async def test_cancels_the_handler_when_it_ends(self, how: str) -> None:
        ended: list[float] = []

        async def long(event: Received[Any]) -> None:
            setattr(deliveries.weather, how, True)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(deliveries.clock.monotonic())

        consumer = Consumer("billing", timeout=None)
        consumer.on("order.paid")(long)
        async with in_memory(consumer) as deliveries:
            event = deliveries.publish("order.paid")
            began = deliveries.clock.monotonic()
            await deliveries.advance(59)
            assert ended == []
            await deliveries.advance(2)
            assert ended[0] - began == pytest.approx(60, abs=0.2)
            assert deliveries.fates(event)[0] is Fate.LEASE_LOST
