"""Handlers of every temper, outages, kills and ends in any order: nothing is lost, and no order is broken."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from consumers import Consumer, Context, Defer, Fixed, Received, TransientError
from consumers.events import CompletionUnwritten, PipelineFault
from consumers.testing import Deliveries, Fate, in_memory

ATTEMPTS = 4
TEMPERS = [
    "well",
    "well",
    "well",
    "slow",
    "fails once",
    "fails always",
    "fatal",
    "defers once",
    "hangs once",
    "odd once",
]
KEYS = ["", "", "k1", "k2"]


@dataclass(frozen=True)
class Publish:
    """An event comes, whose handler has this temper."""

    temper: str
    key: str
    twice: bool


@dataclass(frozen=True)
class Deed:
    """What happens in between."""

    what: str
    seconds: float = 0.0


DEEDS = st.one_of(
    st.builds(Publish, st.sampled_from(TEMPERS), st.sampled_from(KEYS), st.booleans()),
    st.builds(Publish, st.sampled_from(TEMPERS), st.sampled_from(KEYS), st.booleans()),
    st.builds(Deed, st.just("advance"), st.sampled_from([0.0, 0.3, 2.0, 5.0, 20.0, 61.0])),
    st.builds(Deed, st.sampled_from(["store away", "store back", "dead letters away", "dead letters back"])),
    st.builds(Deed, st.sampled_from(["crash", "stop", "lose a lease"])),
)


@dataclass
class Effects:
    """What handlers did."""

    of: Counter[UUID] = field(default_factory=Counter)
    first: list[UUID] = field(default_factory=list)
    times: Counter[UUID] = field(default_factory=Counter)
    running: Counter[Any] = field(default_factory=Counter)
    clashes: list[Any] = field(default_factory=list)
    attempts: int = 0

    def consumer(self, mode: Literal["mark", "claim", "none"], concurrency: int) -> Consumer:
        """A consumer that keeps book here."""
        consumer = Consumer(
            "billing", dedup=mode, concurrency=concurrency, timeout="10s", retry=Fixed("3s", max_attempts=ATTEMPTS)
        )

        @consumer.on("do")
        async def do(event: Received[Any], ctx: Context) -> object:
            lane = event.ordering_key or event.event_id
            self.running[lane] += 1
            if self.running[lane] > 1:
                self.clashes.append(lane)
            try:
                return await self.act(event, ctx)
            finally:
                self.running[lane] -= 1

        return consumer

    async def act(self, event: Received[Any], ctx: Context) -> object:
        """According to the event's temper."""
        self.times[event.event_id] += 1
        self.attempts = max(self.attempts, ctx.attempt)
        first = self.times[event.event_id] == 1
        match event.data:
            case "slow":
                await asyncio.sleep(0)
            case "fails always":
                raise TransientError("never")
            case "fails once" if first:
                raise TransientError("not yet")
            case "fatal":
                raise SystemError
            case "defers once" if first:
                return Defer(timedelta(seconds=2))
            case "hangs once" if first:
                await asyncio.Event().wait()
            case "odd once" if first:
                raise BaseExceptionGroup("odd", [SystemExit(1)])
        if not self.of[event.event_id]:
            self.first.append(event.event_id)
        self.of[event.event_id] += 1
        return None


async def happen(deliveries: Deliveries, deed: Deed, published: list[tuple[UUID, Publish]]) -> None:
    """Have it happen."""
    match deed.what:
        case "advance":
            await deliveries.advance(deed.seconds)
        case "store away" | "store back":
            deliveries.weather.store_away = deed.what.endswith("away")
        case "dead letters away" | "dead letters back":
            deliveries.weather.dead_letters_away = deed.what.endswith("away")
        case "crash":
            await deliveries.advance(0)
            await deliveries.crash()
            await deliveries.restart()
        case "stop":
            await deliveries.advance(0)
            await deliveries.stop()
            await deliveries.restart()
        case "lose a lease":
            for event, _ in published[-1:]:
                await deliveries.store.forget("billing", event)


async def live(mode: Literal["mark", "claim", "none"], script: list[Any], concurrency: int, most_resting: int) -> None:
    """Go through the script, then let everything come to its end, and look."""
    effects, published = Effects(), list[tuple[UUID, Publish]]()
    consumer = effects.consumer(mode, concurrency)
    async with in_memory(consumer, most_resting=most_resting) as deliveries:
        for deed in script:
            if isinstance(deed, Publish):
                event = deliveries.publish("do", deed.temper, ordering_key=deed.key)
                published.append((event, deed))
                if deed.twice:
                    deliveries.repeat(event)
            else:
                await happen(deliveries, deed, published)
        deliveries.weather.store_away = deliveries.weather.dead_letters_away = False
        async with asyncio.timeout(60):
            await deliveries.drain()
        faults = [event.error for event in deliveries.events if isinstance(event, PipelineFault)]
        assert faults == []
        assert deliveries.process.source.held_messages == 0
        flow = deliveries.process.runtime._flow
        assert (flow.waiting, flow.resting, flow._lanes) == (0, 0, {})
        assert effects.clashes == [], "two of a lane at once"
        assert_effects(mode, script, published, effects, deliveries)


def assert_effects(
    mode: str, script: list[Any], published: list[tuple[UUID, Publish]], effects: Effects, deliveries: Deliveries
) -> None:
    """Each event had its effect or is a dead letter, each as often as was promised."""
    dead = {UUID(letter.event_id) for letter in deliveries.dead_letters}
    deeds = {deed.what for deed in script if isinstance(deed, Deed)}
    calm = not deeds & {"crash", "stop", "lose a lease", "store away"}
    for event, deed in published:
        if mode == "mark" and "crash" in deeds:
            continue  # at most once
        assert effects.of[event] or event in dead, f"lost: {deed}"
        if calm and mode != "none":
            assert effects.of[event] + (event in dead) == 1, deed
            assert Fate.DONE not in deliveries.fates(event)[:-2] or deed.twice
    if calm:
        assert effects.attempts <= ATTEMPTS
    if not deeds & {"lose a lease"} and mode != "none" and not told(deliveries, CompletionUnwritten):
        for key in {deed.key for _, deed in published} - {""}:
            of_key = [event for event, deed in published if deed.key == key]
            assert [event for event in effects.first if event in of_key] == [
                event for event in of_key if effects.of[event]
            ], "out of order"


def told(deliveries: Deliveries, kind: type) -> list[Any]:
    return [event for event in deliveries.events if isinstance(event, kind)]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["claim", "claim", "mark", "none"]),
    st.lists(DEEDS, min_size=1, max_size=25),
    st.sampled_from([1, 2, 20]),
    st.sampled_from([0, 2, 500]),
)
def test_whatever_happens(mode: Any, script: list[Any], concurrency: int, most_resting: int) -> None:
    """The promise of each mode is kept."""
    asyncio.run(live(mode, script, concurrency, most_resting))
