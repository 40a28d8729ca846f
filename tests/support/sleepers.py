"""A relay that sleeps, in the test's own process, and somebody who hears what is told."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg

from relay.envelope import Message
from relay.kernel.clock import SystemClock
from relay.kernel.loop import Loop
from relay.kernel.worker import Worker
from relay.outbox.events import ListenConnected
from relay.outbox.listening import Listening
from relay.outbox.sleep import Sleeper
from relay.postgres.connect import connect_async
from tests.support.bench import Bench
from tests.support.brokers import BrokerInHand
from tests.support.looking import asked
from tests.support.roles_of_tests import as_relay
from tests.support.waiting import until_async

# Whoever holds or asks for the lock of a sleeper, and in which mode.
LOCKS = """
select pid, mode, granted from pg_locks
 where locktype = 'advisory' and classid = 2002873189 and objid = 'outbox_events'::regclass
   and database = (select oid from pg_database where datname = current_database())
"""
# Such a lock, and a look that found that all from before it has ended.
ASLEEP = """
select 1 from pg_locks as held join pg_stat_activity as session on session.pid = held.pid
 where locktype = 'advisory' and classid = 2002873189 and objid = 'outbox_events'::regclass and mode = 'ExclusiveLock'
   and session.datname = current_database() and state = 'idle'
   and query like '-- Nothing is locked, and all that is said%' and state_change < clock_timestamp() - interval '0.6 s'
"""


class TimingBroker(BrokerInHand):
    """Takes everything, and notes when."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, float] = {}

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Keep the messages."""
        answers = await super().publish(topic, messages, seconds)
        now = time.monotonic()
        self.taken |= {message.attributes["event_id"]: now for message in messages}
        return answers


class SleepingRelay:
    """A publisher's loop that sleeps, over URLs of the test's choice."""

    def __init__(self, bench: Bench, listen_url: str = "", longest: float = 30.0) -> None:
        self.bench = bench
        self.listen_url = listen_url or as_relay(bench.url)
        self.broker = TimingBroker()
        bench.broker = self.broker
        self.seen: list[object] = []
        self.publisher = bench.publisher_on(bench.open_outbox())
        worker = Worker(self.publisher, SystemClock(), self.seen.append)
        self.sleeper = Sleeper(self._listening, self.publisher.floors, longest, self.seen.append, self.publisher.closed)
        self.loop = Loop(worker, SystemClock(), 60.0, rest=self.sleeper)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SleepingRelay"]:
        """Run for the length of the block."""
        stopping = asyncio.Event()
        task = asyncio.create_task(self.loop.run(stopping))
        try:
            yield self
        finally:
            stopping.set()
            self.loop.wake.set()
            await task
            await self.publisher.close()

    def told(self, kind: type) -> int:
        """How many events of a kind there were."""
        return sum(isinstance(event, kind) for event in self.seen)

    async def connected(self, times: int = 1) -> None:
        """Return when it has been able to hear so many times."""

        async def connected() -> bool:
            return self.told(ListenConnected) >= times

        await until_async(connected, f"connected {times} times")

    async def asleep(self) -> None:
        """Return when it has nothing more to do and is in its long wait."""
        await until_async(self._asleep, "the relay sleeps")

    async def published(self, *event_ids: str) -> None:
        """Return when the broker has these."""
        await until_async(lambda: self._published(event_ids), f"{len(event_ids)} events are published")

    async def _asleep(self) -> bool:
        return bool(asked(self.bench.url, ASLEEP))

    async def _published(self, event_ids: Sequence[str]) -> bool:
        return all(event_id in self.broker.taken for event_id in event_ids)

    async def _listening(self) -> Listening:
        return await Listening.open(
            lambda: connect_async(self.listen_url), lambda: connect_async(as_relay(self.bench.url)), "public"
        )


@asynccontextmanager
async def spectator(url: str) -> AsyncIterator[list[str]]:
    """Somebody who writes down every notification of the outbox."""
    heard: list[str] = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute("select 'outbox_events'::regclass::oid")).fetchone()
        assert row
        connection.add_notify_handler(lambda notification: heard.append(notification.payload))
        await connection.execute(f"listen outbox_{row[0]}".encode())

        async def read() -> None:
            while True:
                await connection.execute("select 1")
                await asyncio.sleep(0.01)

        reading = asyncio.create_task(read())
        try:
            yield heard
        finally:
            reading.cancel()
            await asyncio.wait({reading})
