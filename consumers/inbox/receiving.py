"""From a source into the inbox: decoded, stored, and only then acknowledged."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import psycopg

from consumers.clock import Clock
from consumers.dead_letters import REPLAYED_FOR, DeadLetters, attributes_of
from consumers.decode import decode, undecodable
from consumers.delivery import Delivery
from consumers.events import DeadLetterFailed, DeliverySettled, Fate, Stored
from consumers.handlers import Handlers, Unhandled
from consumers.inbox.arriving import arrival_of
from consumers.inbox.outage import Outage
from consumers.inbox.rows import Arrival
from consumers.inbox.session import UNKEPT
from consumers.inbox.table import MOST_ROWS, Table
from consumers.outcome import Invalid
from consumers.received import Received, Subject, Undecodable
from consumers.sharding import ShardKey
from consumers.sources.source import Demand, Facts, Source
from consumers.tell import lag_of
from idempotency import StoreUnavailableError
from relay.errors import BrokerError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.failure import sentence
from relay.kernel.observe import Observe
from relay.kernel.wording import kind_of

_MOST_BYTES: Final = 4_000_000
_DEAD_LETTER_PAUSE: Final = 10.0


class _Arrived(NamedTuple):
    delivery: Delivery
    event: Received[Any]
    arrival: Arrival


class Receiving:
    """One batch after the other, so that what is in order when it arrives is in order in the inbox."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        *,
        consumer: str,
        upstream: Source,
        table: Table,
        handlers: Handlers,
        dead_letters: DeadLetters,
        shard_key: ShardKey,
        stored: Callable[[Sequence[Arrival]], None],
        observe: Observe,
        clock: Clock,
        jitter: Jitter = uniform,
    ) -> None:
        self._consumer = consumer
        self._upstream = upstream
        self._table = table
        self._handlers = handlers
        self._dead_letters = dead_letters
        self._shard_key = shard_key
        self._stored = stored
        self._observe = observe
        self._clock = clock
        self._outage = Outage(consumer, "receive", observe, clock, jitter)
        self._waiting: deque[Delivery] = deque()
        self._news = asyncio.Event()

    @property
    def name(self) -> str:
        """The subscription."""
        return self._upstream.name

    @property
    def held_messages(self) -> int:
        """What is not acknowledged."""
        return self._upstream.held_messages

    @property
    def held_bytes(self) -> int:
        """And what it takes."""
        return self._upstream.held_bytes

    async def open(self) -> Facts:
        """Look at the subscription."""
        return await self._upstream.open()

    async def run(self, demand: Demand) -> None:
        """Receive and store until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._upstream.run(self._take, demand))
            tasks.create_task(self._keep())

    async def close(self, seconds: float) -> None:
        """Send what is still to be said to the source."""
        await self._upstream.close(seconds)

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self._waiting.extend(deliveries)
        self._news.set()

    async def _keep(self) -> None:
        """Store what comes, until cancelled; then what is not stored goes back."""
        batch: list[Delivery] = []
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while batch := self._batch():
                    await self._receive(batch)
        finally:
            for delivery in [*batch, *self._waiting]:
                self._upstream.give_back(delivery)
            self._waiting.clear()

    def _batch(self) -> list[Delivery]:
        batch: list[Delivery] = []
        size = 0
        while self._waiting and len(batch) < MOST_ROWS and size < _MOST_BYTES:
            delivery = self._waiting.popleft()
            size += len(delivery.body)
            batch.append(delivery)
        return batch

    async def _receive(self, batch: list[Delivery]) -> None:
        """Acknowledge each when it is where it belongs; what is settled leaves the batch."""
        arrived: list[_Arrived] = []
        for delivery in list(batch):
            subject = self._read(delivery)
            if delivery.attributes.get(REPLAYED_FOR, self._consumer) != self._consumer:
                await self._settled(delivery, subject, Fate.NOT_MEANT)
            elif isinstance(subject, Undecodable):
                await self._bury(delivery, subject)
            elif isinstance(self._handlers.resolve(subject.event_type, subject.version), Unhandled):
                await self._settled(delivery, subject, Fate.UNHANDLED)
            elif isinstance(arrival := self._arrival(delivery, subject), Undecodable):
                await self._bury(delivery, arrival)
            else:
                arrived.append(_Arrived(delivery, subject, arrival))
                continue
            batch.remove(delivery)
        began = self._clock.monotonic()
        new = await self._store(arrived, batch)
        # Whatever ends this from here on, they are stored, and none goes back.
        kept = set(batch)
        batch.clear()
        # Side by side: a source may wait for its server's word about each.
        await asyncio.gather(*[self._upstream.acknowledge(delivery) for delivery in kept])
        duplicates = 0
        for delivery, subject, _ in arrived:
            if delivery not in kept:
                continue
            if str(subject.event_id) in new:
                new.discard(str(subject.event_id))  # of one that came twice in the batch, the second is a duplicate
            else:
                duplicates += 1
                self._tell(delivery, subject, Fate.DUPLICATE)
        stored = len(kept) - duplicates
        if arrived:
            self._observe(Stored(self._consumer, stored, duplicates, self._clock.monotonic() - began))

    def _read(self, delivery: Delivery) -> Subject:
        try:
            return decode(delivery)
        except Exception as error:  # noqa: BLE001 -- a bug of ours must not end the consumer, again at each start
            return undecodable(delivery, f"it was not read: {sentence(error)}")

    def _arrival(self, delivery: Delivery, event: Received[Any]) -> Arrival | Undecodable:
        try:
            return arrival_of(delivery, event, self._shard_key)
        except Exception as error:  # noqa: BLE001 -- the user's own code must not end the consumer, again at each start
            return undecodable(delivery, f"shard_by does not say where it belongs: it failed ({kind_of(error)})")

    async def _store(self, arrived: Sequence[_Arrived], batch: list[Delivery]) -> set[str]:
        """The ids of those that are new; however long the database is away. What cannot be stored leaves the batch."""
        if not arrived:
            return set()
        arrivals = [arrival for *_, arrival in arrived]
        while True:
            try:
                new = await self._table.receive(arrivals)
            except UNKEPT as error:
                self._outage.over()
                return await self._store_apart(arrived, batch, error)
            except StoreUnavailableError as error:
                await self._outage.wait(error)
            else:
                self._outage.over()
                self._stored(arrivals)
                return new

    async def _store_apart(self, arrived: Sequence[_Arrived], batch: list[Delivery], error: psycopg.Error) -> set[str]:
        """One of them is nothing that Postgres keeps, such as a NUL in a text: the others must not wait for it."""
        if len(arrived) == 1:
            ((delivery, *_),) = arrived
            reason = f"the inbox cannot store it: {error.diag.message_primary or type(error).__name__}"
            await self._bury(delivery, undecodable(delivery, reason))
            batch.remove(delivery)
            return set()
        half = len(arrived) // 2
        return await self._store(arrived[:half], batch) | await self._store(arrived[half:], batch)

    async def _bury(self, delivery: Delivery, subject: Undecodable) -> None:
        why = Invalid(subject.reason, subject.code)
        attributes = attributes_of(
            delivery,
            why,
            consumer=self._consumer,
            subscription=self._upstream.name,
            attempts=0,
            now=datetime.fromtimestamp(self._clock.wall(), UTC),
        )
        try:
            await self._dead_letters.send(delivery, attributes)
        except BrokerError as refused:
            topic = self._dead_letters.topic
            self._observe(DeadLetterFailed(self._consumer, topic, subject, refused, _DEAD_LETTER_PAUSE))
            self._upstream.give_back(delivery, _DEAD_LETTER_PAUSE)
            return
        await self._settled(delivery, subject, Fate.UNDECODABLE, why.code, why.reason)

    async def _settled(
        self, delivery: Delivery, subject: Subject, fate: Fate, code: str = "", reason: str = ""
    ) -> None:
        await self._upstream.acknowledge(delivery)
        self._tell(delivery, subject, fate, code, reason)

    def _tell(self, delivery: Delivery, subject: Subject, fate: Fate, code: str = "", reason: str = "") -> None:
        lag = lag_of(subject.created_at, delivery.published_at, self._clock.wall())
        self._observe(DeliverySettled(self._consumer, subject, fate, 0, 0.0, lag, code, reason))
