"""What the store did, and this process never heard of: it is known for its own when it is asked for again."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal
from uuid import uuid4

import pytest

from consumers import Consumer, Context, Dead, Fixed, Received, TransientError
from consumers.dedup.tokens import Tokens
from consumers.events import Fate
from consumers.testing import FakeClock, in_memory
from idempotency import Claimed, MemoryManager, Store, StoreUnavailableError
from idempotency import script as scripts
from idempotency.call import Call

ModeName = Literal["mark", "claim"]
MODES: list[ModeName] = ["mark", "claim"]


class Mishaps(Store):
    """A store on the way from which something happens to an answer."""

    def __init__(self, clock: FakeClock) -> None:
        self.inner = MemoryManager(clock=clock.monotonic, sleep=clock.sleep, chance=lambda: 0.5)
        super().__init__(self.inner.settings, clock=clock.monotonic, sleep=clock.sleep, chance=lambda: 0.5)
        self.after: Callable[[Call[Any], list[Any]], Awaitable[None]] | None = None

    async def ask(self, call: Call[Any]) -> list[Any]:
        answers = await self.inner.ask(call)
        if self.after:
            await self.after(call, answers)
        return answers

    async def examine(self, retention: timedelta | None = None) -> list[str]:  # noqa: ARG002 -- as any store takes it
        return []


def consumer_of(mode: ModeName, handler: Any, **how: Any) -> Consumer:
    consumer = Consumer("billing", dedup=mode, **how)
    consumer.on("order.paid")(handler)
    return consumer


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_that_was_lost_costs_no_event_and_no_attempt(mode: ModeName) -> None:
    clock = FakeClock()
    store = Mishaps(clock)
    attempts: list[int] = []

    async def lost(call: Call[Any], answers: list[Any]) -> None:
        if call.script in {scripts.CLAIM, scripts.MARK}:
            store.after = None
            raise StoreUnavailableError("the answer did not come")

    async def act(event: Received[Any], ctx: Context) -> None:
        attempts.append(ctx.attempt)

    store.after = lost
    async with in_memory(consumer_of(mode, act), clock=clock, store=store) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(5)
        assert (attempts, deliveries.fates(event), deliveries.pending) == ([1], [Fate.HELD, Fate.DONE], 0)


@pytest.mark.parametrize("mode", MODES)
async def test_a_failed_event_comes_again_though_the_store_was_away_for_its_release(mode: ModeName) -> None:
    calls: list[int] = []

    async def fail(event: Received[Any], ctx: Context) -> None:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            deliveries.weather.store_away = True
            raise TransientError("no")

    async with in_memory(consumer_of(mode, fail, retry=Fixed("5s"))) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(1)
        deliveries.weather.store_away = False
        await deliveries.advance(120)
        assert (calls, deliveries.fates(event)[-1], deliveries.pending) == ([1, 2], Fate.DONE, 0)


@pytest.mark.parametrize("mode", MODES)
async def test_a_dead_letter_is_written_though_its_topic_and_the_store_were_away(mode: ModeName) -> None:
    async def fail(event: Received[Any], ctx: Context) -> Dead:
        deliveries.weather.store_away = deliveries.weather.dead_letters_away = True
        return Dead("never")

    async with in_memory(consumer_of(mode, fail)) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(1)
        deliveries.weather.store_away = deliveries.weather.dead_letters_away = False
        await deliveries.advance(180)
        assert (len(deliveries.dead_letters), deliveries.fates(event)[-1], deliveries.pending) == (1, Fate.DEAD, 0)


async def test_no_handler_begins_on_a_claim_whose_lease_is_over() -> None:
    """The process stood still while the answer lay in its socket; somebody else has had the event meanwhile."""
    clock = FakeClock()
    store = Mishaps(clock)
    calls: list[str] = []

    async def stands_still(call: Call[Any], answers: list[Any]) -> None:
        if call.script is scripts.CLAIM and isinstance(answers[0], Claimed):
            store.after = None
            clock._now += 61 << 20  # time goes by, and no timer fires
            other = await store.inner.claim("billing", answers[0].event_id)
            assert isinstance(other, Claimed)
            calls.append("elsewhere")
            await store.inner.complete(other)

    async def act(event: Received[Any], ctx: Context) -> None:
        calls.append("here")

    store.after = stands_still
    async with in_memory(consumer_of("claim", act), clock=clock, store=store) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(5)
        assert (calls, deliveries.fates(event)[-1]) == (["elsewhere"], Fate.DUPLICATE)


async def test_a_surprise_ends_no_renewal() -> None:
    """Whatever is raised where leases are renewed, they are again a little later."""
    clock = FakeClock()
    store = Mishaps(clock)

    async def surprise(call: Call[Any], answers: list[Any]) -> None:
        if call.script is scripts.RENEW:
            store.after = None
            raise RuntimeError("nobody thought of this")

    async def act(event: Received[Any], ctx: Context) -> None:
        await clock.sleep(600)

    store.after = surprise
    async with in_memory(consumer_of("claim", act, timeout=None), clock=clock, store=store) as deliveries:
        event = deliveries.publish("order.paid")
        await deliveries.advance(599)
        assert not isinstance(await store.inner.claim("billing", event), Claimed)
        await deliveries.advance(2)
        assert deliveries.fates(event) == [Fate.DONE]


def test_whoever_asks_beside_gets_a_token_of_its_own() -> None:
    tokens, event = Tokens(most=2), uuid4()
    tokens.keep(event, "kept")
    assert tokens.take(event) == "kept"
    assert tokens.take(event) not in {"kept", tokens.take(event)}


def test_the_events_of_longest_ago_are_given_up_first() -> None:
    tokens, events = Tokens(most=2), [uuid4() for _ in range(3)]
    for event in events:
        tokens.keep(event, str(event))
    assert [tokens.take(event) == str(event) for event in events] == [False, True, True]
