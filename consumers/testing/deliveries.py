"""A consumer at work in memory, and the test's hand on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self
from uuid import UUID, uuid4

from pydantic_core import to_json

from consumers.app import Consumer
from consumers.events import DeliverySettled, Fate, PipelineFault, TicketSettled
from consumers.handlers import Handlers
from consumers.received import Received
from consumers.testing.broker import DeadLetter, Subscription
from consumers.testing.clock import FakeClock, settle
from consumers.testing.database import Place
from consumers.testing.process import Process, World
from idempotency import MemoryManager, Store

PATIENCE: Final = 10.0
"""Seconds of real time after which a test that waits in vain is told so."""
UNSET: Final[Any] = object()
_RETENTION = timedelta(days=7)
_BLINK = 0.02
# The clock goes in steps of its own.
_STEP = 0.001


class Message(Protocol):
    """What a relay published: `relay.testing` answers with such, and so does whatever else keeps messages."""

    @property
    def body(self) -> bytes:
        """The envelope, as JSON."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """The relay's own, and the event's."""

    @property
    def ordering_key(self) -> str:
        """Empty where there is none."""


class Deliveries:
    """The test's hand on a consumer that runs in memory: what it publishes, and what became of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.observe = self._observe
        self.clock = world.clock
        self.store = world.store
        self.weather = world.weather
        self.events: list[object] = []
        """Everything that was told, in its order: what logs and metrics are made of."""
        self._over: set[str] = set()
        self._unseen: dict[str, list[DeliverySettled | PipelineFault]] = {}
        self._bodies: dict[str, tuple[bytes, dict[str, str], str]] = {}
        self._sequence = 0
        self._news = asyncio.Event()
        self._batch_wait = max((each.batch_wait for each in world.consumer.handlers.all() if each.batch), default=0.0)
        self._process: Process | None = None

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """What is in the dead-letter topic, the oldest first."""
        return list(self._world.dead_letters)

    @property
    def settled(self) -> list[DeliverySettled]:
        """Every time that a delivery was worked on, with its fate, attempt, error and how long it rests."""
        return [event for event in self.events if isinstance(event, DeliverySettled)]

    @property
    def pending(self) -> int:
        """Messages that are not acknowledged; with an inbox, also events that are not over there."""
        unacknowledged = len(self._world.subscription.unacknowledged)
        if self._world.database is None:
            return unacknowledged
        return max(unacknowledged, len(self._bodies.keys() - self._over))

    @property
    def process(self) -> Process:
        """The one that runs."""
        if self._process is None:
            raise RuntimeError("the consumer has ended; start it again with: await deliveries.restart()")
        return self._process

    @property
    def running(self) -> Process | None:
        """The one that runs, if one does."""
        return self._process

    def poke(self) -> None:
        """Have whoever waits for something look again."""
        self._news.set()

    def fates(self, event_id: UUID | str) -> list[Fate]:
        """What became of an event, time after time."""
        return [event.fate for event in self.settled if str(event_id) in _names(event)]

    def publish(  # noqa: PLR0913 -- what an event has
        self,
        event_type: str,
        data: Any = None,
        *,
        event_id: UUID | str | None = None,
        version: int = 1,
        aggregate_type: str = "thing",
        aggregate_id: str = "1",
        ordering_key: str = "",
        actor: Mapping[str, Any] | None = None,
        occurred_at: datetime | None = None,
        attributes: Mapping[str, str] | None = None,
        delivery_attempt: int = 0,
    ) -> UUID:
        """Have an event delivered, as a relay would publish it, and answer with its id.

        `data` is anything that pydantic writes as JSON. `delivery_attempt` is for a broker that counts.
        """
        identity = uuid4() if event_id is None else UUID(str(event_id))
        self._sequence += 1
        now = self.clock.now()
        envelope = {
            "event_id": identity,
            "event_type": event_type,
            "version": version,
            "occurred_at": occurred_at or now,
            "actor": actor,
            "data": data,
        }
        relays = {
            "event_id": str(identity),
            "event_type": event_type,
            "aggregate_type": aggregate_type,
            "aggregate_id": aggregate_id,
            "created_at": now.isoformat(),
            "sequence": str(self._sequence),
        }
        self.publish_raw(
            to_json(envelope),
            {**(attributes or {}), **relays},
            ordering_key=ordering_key,
            delivery_attempt=delivery_attempt,
        )
        return identity

    def publish_raw(
        self,
        body: bytes,
        attributes: Mapping[str, str] | None = None,
        *,
        ordering_key: str = "",
        delivery_attempt: int = 0,
    ) -> str:
        """Have a message delivered as it is, and answer with the message's id."""
        attributes = dict(attributes or {})
        message_id = self._world.subscription.publish(
            body,
            attributes,
            ordering_key=ordering_key,
            published_at=self.clock.wall(),
            attempt=delivery_attempt,
        )
        if "event_id" in attributes:
            self._bodies[attributes["event_id"]] = (body, attributes, ordering_key)
        return message_id

    async def deliver(self, message: Message, *, delivery_attempt: int = 0) -> DeliverySettled:
        """Have a message delivered that a relay published, and answer with the first that becomes of it."""
        key = message.ordering_key
        return await self.wait_for(
            self.publish_raw(message.body, message.attributes, ordering_key=key, delivery_attempt=delivery_attempt)
        )

    def repeat(self, event_id: UUID | str) -> None:
        """Have an event delivered once more, as brokers do; under another message id."""
        body, attributes, ordering_key = self._bodies[str(event_id)]
        self.publish_raw(body, attributes, ordering_key=ordering_key)

    async def wait_for(self, event_id: UUID | str) -> DeliverySettled:
        """What became of an event, or of a raw message by its id: the next time that it comes to an end.

        Of an event that was fanned out, `f"{event_id}/{recipient}"` names what became of it for one recipient.

        Called again it waits for the time after; an event that rests comes again when the clock is moved.
        """
        name = str(event_id)
        try:
            async with asyncio.timeout(PATIENCE):
                while not self._unseen.get(name):
                    self._news.clear()
                    await self._something_in_batches() if self._batch_wait else await self._something()
        except TimeoutError:
            raise AssertionError(f"{name}: {self._state(name)}") from None
        found = self._unseen[name].pop(0)
        if isinstance(found, PipelineFault):
            raise AssertionError(f"the SDK itself failed on {name}") from found.error  # noqa: TRY004 -- the test fails
        return found

    async def finish(self, event_id: UUID | str) -> DeliverySettled:
        """What became of an event in the end, when it was acknowledged; the clock goes on as far as that takes."""
        while not (found := await self._after_rests(event_id)).fate.final:
            pass
        return found

    async def drain(self) -> None:
        """Return when every message is acknowledged; the clock goes on as far as that takes.

        Recipients of an event that was fanned out are not waited for: see `wait_for`.
        """
        while self.pending:
            await self.step()

    async def step(self) -> None:
        """Let happen what can happen now; or else move the clock to what is next."""
        self._news.clear()
        await settle()
        if not self.pending or self._news.is_set():
            return
        works_outside = self._world.database is not None
        if self._process is not None and (works_outside or self._process.runtime.stats(0.0).running):
            with suppress(TimeoutError):
                async with asyncio.timeout((1 if works_outside else 10) * _BLINK):
                    await self._something()
        if not self._news.is_set():
            due = self.clock.next_due()
            if due is None:
                raise AssertionError(f"{self.pending} messages are not acknowledged, and nothing waits for the clock")
            await self.clock.advance(due)

    async def advance(self, seconds: float | timedelta) -> None:
        """Move the clock: what rests comes again, leases are renewed or run out, handlers time out."""
        await self.clock.advance(seconds)

    async def crash(self) -> None:
        """Kill the process: what it held is delivered again, what it claimed is claimed until the leases run out.

        Asynchronous handlers are cancelled where they wait; nothing that they do then reaches the store or the broker.
        """
        process, self._process = self.process, None
        await process.kill()

    async def restart(self) -> None:
        """Start the consumer in a new process, after `crash` or `stop`."""
        if self._process is not None:
            raise RuntimeError("the consumer runs; end it first with: await deliveries.crash()")
        self._process = Process(self._world)
        try:
            await self._process.start()
        except BaseException:  # a start that was cancelled has no process either
            self._process = None
            raise

    async def stop(self) -> tuple[str, ...]:
        """End the process in order, as at SIGTERM; the handlers that had to be abandoned."""
        process, self._process = self.process, None
        return await process.end()

    async def __aenter__(self) -> Self:
        await self.restart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            await self.stop()

    def _observe(self, event: object) -> None:
        self.events.append(event)
        if isinstance(event, DeliverySettled) and event.fate.final:
            self._over |= _names(event)
        if isinstance(event, TicketSettled) and event.verdict.final:
            self._over.add(f"{event.event_id}/{event.recipient}" if event.recipient else event.event_id)
        if isinstance(event, DeliverySettled | PipelineFault):
            for name in _names(event):
                self._unseen.setdefault(name, []).append(event)
        self._news.set()

    async def _after_rests(self, event_id: UUID | str) -> DeliverySettled:
        while not self._unseen.get(str(event_id)):
            if not self.pending:
                return await self.wait_for(event_id)
            await self.step()
        return await self.wait_for(event_id)

    async def _something_in_batches(self) -> None:
        """Wait for something, and let the moment go by for which a batch waits until it is full."""
        await settle()
        due = self.clock.next_due()
        if not self._news.is_set() and due is not None and due <= self._batch_wait + _STEP:
            await self.clock.advance(due)
        with suppress(TimeoutError):
            async with asyncio.timeout(_BLINK):
                await self._something()

    async def _something(self) -> None:
        task = self._process.task if self._process else None
        if task is None:
            raise AssertionError("nothing happens: the consumer was killed; await deliveries.restart()")
        news = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait([news, task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if task.done():
            await task
            raise AssertionError("the consumer has ended")

    def _state(self, name: str) -> str:
        fates = [event for event in self.settled if name in _names(event)]
        if not fates:
            return f"nothing became of it within {PATIENCE:.0f} s; its handler runs, or it waits behind another event"
        last = fates[-1]
        if last.again_in is None:
            return f"nothing more became of it: it was {last.fate.value} and is over"
        return (
            f"nothing more became of it: it was {last.fate.value} and comes again in {last.again_in:g} s; "
            f"move the clock with: await deliveries.advance({last.again_in:g})"
        )


def in_memory(  # noqa: PLR0913 -- each by its name, each with a default
    consumer: Consumer,
    *,
    clock: FakeClock | None = None,
    state: Any = UNSET,
    store: Store | None = None,
    retention: timedelta = _RETENTION,
    max_messages: int = 1_000,
    most_resting: int = 500,
    counts_attempts: bool = False,
    outlived: bool = False,
    database: Place | str | None = None,
) -> Deliveries:
    """Run the consumer as in production, but for what is around it.

    Args:
        consumer: With its handlers, models, upcasters, retries, timeouts, concurrency and deduplication.
        clock: Which the test moves.
        state: What handlers get as `ctx.state`, in place of the consumer's lifespan.
        store: What remembers events. Default: a MemoryManager on the clock.
        retention: How long the subscription says that it keeps messages.
        max_messages: How many of them are held at once.
        most_resting: How many unordered ones rest in the process before they are given back.
        counts_attempts: Whether the subscription counts deliveries, as with a dead-letter policy of its own.
        database: A Postgres that `consumers migrate` has prepared, for a consumer with dedup="inbox": its URL, or a
            `Place`, which has its schema and the length of a lease as well. Its time goes on with the clock.
        outlived: Whether the consumer ends as in a service, whose process goes on: not before its threads do.

    Example:
        async with in_memory(billing) as deliveries:
            paid = deliveries.publish("order.paid", {"order": "o-1"})
            assert (await deliveries.wait_for(paid)).fate is Fate.DONE
    """
    clock = clock or FakeClock()
    if store is None:
        store = MemoryManager(clock=clock.monotonic, sleep=clock.sleep, chance=lambda: 0.5)
    name = consumer.subscription
    return Deliveries(
        World(
            consumer=changed(consumer, state=state),
            clock=clock,
            store=store,
            subscription=Subscription(clock, name, retention, max_messages, counts_attempts=counts_attempts),
            database=Place(database) if isinstance(database, str) else database,
            most_resting=most_resting,
            outlived=outlived,
            observe=lambda _: None,
        )
    )


def changed(
    consumer: Consumer, *, state: Any = UNSET, handlers: Callable[[Handlers], Handlers] | None = None
) -> Consumer:
    """The consumer, with another state or other handlers."""
    like = copy(consumer)
    if state is not UNSET:

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[Any]:
            yield state

        like.lifespan = lifespan
    if handlers is not None:
        like.handlers = handlers(consumer.handlers)
    return like


def _names(event: DeliverySettled | PipelineFault) -> set[str]:
    """By which the event is waited for: raw messages by the message's id, what was fanned out by its recipient."""
    subject = event.subject
    if isinstance(subject, Received) and subject.recipient:
        return {f"{subject.event_id}/{subject.recipient}"}
    identity = str(subject.event_id) if isinstance(subject, Received) else subject.event_id
    return {identity, subject.message_id} - {""}
