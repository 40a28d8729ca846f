"""One process of a consumer in memory: its own runtime, between a subscription, a store and a dead-letter topic."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from consumers.app import Consumer
from consumers.backlog import Backlog
from consumers.context import Locks
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.none import NoDedup
from consumers.dedup.protocol import Dedup, Effects, Mode
from consumers.delivery import Delivery
from consumers.events import ConsumerStarted
from consumers.outside import Outside
from consumers.runtime import Runtime
from consumers.sends import Sends
from consumers.sources.source import Source
from consumers.testing.broker import DeadLetter, Fuse, MemoryDeadLetters, MemorySource, Subscription
from consumers.testing.clock import FakeClock, settle
from consumers.testing.database import Database, Place
from idempotency import IdempotencyError, Store, StoreUnavailableError
from idempotency.call import Call
from relay.errors import BrokerError

_SHUTDOWN = 25.0
_BLINK = 0.02
_HANG = 1.0
# What INBOX_MAX_DEFERS is unless it is set.
_MOST_DEFERRALS = 1_000
_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Weather:
    """What is away at the moment."""

    store_away: bool = False
    store_hangs: bool = False
    """What is asked of the store is never answered, as long as it is away in this way."""
    dead_letters_away: bool = False


@dataclass(slots=True, kw_only=True)
class World:
    """What outlives a process."""

    consumer: Consumer
    clock: FakeClock
    store: Store
    subscription: Subscription
    database: Place | None
    """Where the inbox is, for a consumer that has one."""
    most_resting: int
    outlived: bool
    observe: Callable[[object], None]
    weather: Weather = field(default_factory=Weather)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class _Store(Store):
    """One process's way to the store, until its fuse blows."""

    def __init__(self, inner: Store, fuse: Fuse, weather: Weather, clock: FakeClock) -> None:
        super().__init__(inner.settings, clock=inner.clock, sleep=inner.sleep, chance=inner.chance)
        self._clock = clock
        self._inner = inner
        self._fuse = fuse
        self._weather = weather

    async def ask(self, call: Call[_T]) -> "list[_T | IdempotencyError]":
        if self._fuse.blown or self._weather.store_away:
            raise StoreUnavailableError("the store is away, as the test has it")
        while self._weather.store_hangs:
            await self._clock.sleep(_HANG)
        return await self._inner.ask(call)

    async def examine(self, retention: timedelta | None = None) -> list[str]:
        return await self._inner.examine(retention)


class _DeadLetters(MemoryDeadLetters):
    def __init__(self, topic: str, kept: list[DeadLetter], fuse: Fuse, weather: Weather) -> None:
        super().__init__(topic, kept, fuse)
        self._weather = weather

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        if self._weather.dead_letters_away:
            raise BrokerError("UNAVAILABLE", "the dead-letter topic is away, as the test has it")
        await super().send(delivery, attributes)


class Process:
    """One run of the consumer, from its start to its end or its death."""

    def __init__(self, world: World) -> None:
        self.fuse = Fuse()
        self.source = MemorySource(world.subscription, self.fuse)
        self._world = world
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[tuple[str, ...]] | None = None
        consumer, weather = world.consumer, world.weather
        store = _Store(world.store, self.fuse, weather, world.clock)
        dead_letters = _DeadLetters(consumer.dead_letter_topic, world.dead_letters, self.fuse, weather)
        self._database: Database | None = None
        if consumer.dedup is Mode.INBOX:
            self._database = Database(world.database, self.fuse)
            built = self._database.build(consumer, world.clock, self.source, dead_letters, self._observe)
            source: Source = built.source
            dedup: Dedup = built.dedup
            effects: Effects | None = built.effects
            backlog: Backlog | None = built.backlog
            sends: Sends | None = built.sends
            locks: Locks = built.locks
        else:
            source, dedup = self.source, _dedup(consumer, store, world.clock)
            effects = backlog = sends = None
            locks = store
        self.runtime = Runtime(
            consumer,
            Outside(
                source=source,
                dedup=dedup,
                effects=effects,
                backlog=backlog,
                sends=sends,
                dead_letters=dead_letters,
                observe=self._observe,
                locks=locks,
                most_deferrals=_MOST_DEFERRALS,
                most_resting=world.most_resting,
                outlived=world.outlived,
                clock=world.clock,
                jitter=lambda _: 0.0,
            ),
        )

    @property
    def task(self) -> "asyncio.Task[tuple[str, ...]]":
        """The runtime at work."""
        assert self._task is not None  # noqa: S101 -- started
        return self._task

    async def start(self) -> None:
        """Begin; what keeps the consumer from it is raised."""
        self._task = asyncio.create_task(self.runtime.run(self._stopping, _SHUTDOWN))
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait([self.task, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self.task.done():
            await self.task

    async def end(self) -> tuple[str, ...]:
        """Stop in order; the clock goes on as far as that takes."""
        self._stopping.set()
        await self._over()
        return self.task.result()

    async def kill(self) -> None:
        """End without a word to anybody, as a process that is killed."""
        self.fuse.blown = True
        if self._database is not None:
            self._database.cut()
        self.task.cancel()
        await self._over()
        with suppress(asyncio.CancelledError):
            await self.task
        self.source.drop()

    async def _over(self) -> None:
        await settle()
        while not self.task.done():
            # Handlers that are outside, such as in a thread or at a database, may need real time to come back; what a
            # killed process waits for does not matter.
            if self.fuse.blown or not (await asyncio.wait([self.task], timeout=_BLINK))[0]:
                await self._world.clock.advance(1.0)

    def _observe(self, event: object) -> None:
        if self.fuse.blown:
            return
        if isinstance(event, ConsumerStarted):
            self._started.set()
        self._world.observe(event)


def _dedup(consumer: Consumer, store: Store, clock: FakeClock) -> Dedup:
    match consumer.dedup:
        case Mode.MARK:
            return MarkDedup(store, consumer.name)
        case Mode.CLAIM:
            return ClaimDedup(store, consumer.name, clock)
        case Mode.NONE:
            return NoDedup()
        case Mode.INBOX:
            raise ValueError("an inbox is built with its source")
