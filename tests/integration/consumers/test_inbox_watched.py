"""A consumer with an inbox as an operator sees it: what it tells, what it counts, and whether it receives."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import psycopg

from consumers import Consumer, Context, Received
from consumers.backlog import InboxStats, Spent
from consumers.events import (
    ClaimMade,
    ConnectionsFree,
    ConnectionsSpent,
    Fate,
    Heartbeat,
    HeartbeatFailed,
    InboxAway,
    InboxBack,
    LeaseRecovered,
)
from consumers.readiness import Readiness
from consumers.testing import Deliveries, in_memory
from consumers.testing.database import Place
from tests.support.inbox import leases
from tests.support.inbox_at_work import goes_by

Told = TypeVar("Told")


class Desk:
    """A handler that can be held up."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.entered = 0

    async def __call__(self) -> None:
        """Wait while it is held up."""
        self.entered += 1
        await self.open.wait()


@asynccontextmanager
async def running(database: str, desk: Desk) -> AsyncIterator[Deliveries]:
    """A consumer of orders with an inbox, at work."""
    consumer = Consumer("billing", dedup="inbox")

    async def handle(event: Received[object]) -> None:
        await desk()

    consumer.on("order.*")(handle)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


@contextmanager
def broken(database: str) -> Iterator[None]:
    """The inbox without its table, so that all that is asked of it fails."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("alter table inbox_deliveries rename to hidden")
        try:
            yield
        finally:
            connection.execute("alter table hidden rename to inbox_deliveries")


async def until(deliveries: Deliveries, condition: Callable[[], bool]) -> None:
    """Have time go by until it is so."""
    await goes_by(deliveries, 0.25, condition)


async def stats(deliveries: Deliveries) -> InboxStats:
    """A look at it, as each interval has one."""
    runtime = deliveries.process.runtime
    await runtime.look()
    found = runtime.stats(60.0).inbox
    assert found is not None
    return found


def of(deliveries: Deliveries, kind: type[Told]) -> list[Told]:
    """What was told of this kind."""
    return [event for event in deliveries.events if isinstance(event, kind)]


def away_from(deliveries: Deliveries) -> set[str]:
    """For what it was asked in vain."""
    return {each.operation for each in of(deliveries, InboxAway)}


async def test_the_statistics_say_what_came_what_was_claimed_and_what_waits(inbox_database: str) -> None:
    """The counts of each look begin anew, and what is held is as it is."""
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        first = deliveries.publish("order.paid")
        keyed = deliveries.publish("order.paid", ordering_key="k")
        await deliveries.wait_for(first)
        await deliveries.wait_for(keyed)
        deliveries.repeat(first)
        await deliveries.wait_for(first)
        nobody = deliveries.publish("mail.sent")
        await deliveries.wait_for(nobody)
        before = await stats(deliveries)
        desk.open.clear()
        for _ in range(2):
            deliveries.publish("order.paid", ordering_key="k")
        await until(deliveries, lambda: desk.entered == 3)
        await until(deliveries, lambda: len(of(deliveries, ClaimMade)) > 2)
        after = await stats(deliveries)
        desk.open.set()
        await deliveries.drain()

    assert before.available
    assert (before.stored, before.not_stored) == (2, {"duplicate": 1, "unhandled": 1})
    assert (before.claimed, before.conflicts, before.recovered) == ({"ready": 1, "key": 1}, 0, 0)
    assert before.claims >= 2
    assert before.leases == 0
    assert before.queue is not None
    assert (before.queue.due, before.queue.processing) == (0, 0)
    assert (after.stored, after.claimed, after.leases) == (2, {"key": 1}, 1)
    assert after.queue is not None
    assert (after.queue.due, after.queue.processing) == (1, 1)


async def test_handlers_that_wait_for_a_connection_are_told_of_and_make_the_process_unready(
    inbox_database: str,
) -> None:
    """As long as they do; then all of them are handled."""
    consumer, readiness = Consumer("billing", dedup="inbox"), Readiness()
    desk = Desk()
    desk.open.clear()

    @consumer.on("order.paid")
    async def handle(event: Received[object], ctx: Context) -> None:
        async with ctx.transaction():
            await desk()

    async with in_memory(consumer, database=Place(inbox_database, connections=1)) as deliveries:
        for _ in range(2):
            deliveries.publish("order.paid")
        await until(deliveries, lambda: bool(of(deliveries, ConnectionsSpent)))
        busy = await stats(deliveries)
        for event in deliveries.events:
            readiness(event)
        ready_while_they_wait = readiness.receiving, readiness.away()
        desk.open.set()
        await until(deliveries, lambda: bool(of(deliveries, ConnectionsFree)))
        await deliveries.drain()
        for event in deliveries.events:
            readiness(event)

    assert of(deliveries, ConnectionsSpent)[0] == ConnectionsSpent("billing", 1, 1)
    assert busy.connections == Spent(in_use=1, waiting=1)
    assert ready_while_they_wait == (False, {"billing": ["connections"]})
    assert readiness.receiving
    assert desk.entered == 2


async def test_a_consumer_whose_inbox_is_away_does_not_receive_until_it_is_back(inbox_database: str) -> None:
    """Neither storing nor claiming may be away; the one that is back first does not speak for the other."""
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        runtime = deliveries.process.runtime
        assert runtime.receiving
        with broken(inbox_database):
            await until(deliveries, lambda: not runtime.receiving)
            event = deliveries.publish("order.paid")
            await until(
                deliveries, lambda: {each.operation for each in of(deliveries, InboxAway)} == {"receive", "claim"}
            )
            assert not runtime.receiving
            away = await stats(deliveries)
        await until(deliveries, lambda: runtime.receiving)
        await deliveries.wait_for(event)
        back = await stats(deliveries)
        told = [each.operation for each in of(deliveries, InboxBack)]

    assert (away.available, away.queue) == (False, None)
    assert back.available
    assert back.queue is not None
    assert sorted(told) == ["claim", "receive"]


async def test_what_cannot_be_stored_ends_an_outage_as_well(inbox_database: str) -> None:
    """The database has answered, whatever it said of the message."""
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        runtime = deliveries.process.runtime
        with broken(inbox_database):
            event = deliveries.publish("order.paid", {"text": "a\0b"})
            neighbour = deliveries.publish("order.paid")
            await until(deliveries, lambda: "receive" in away_from(deliveries))
        await until(deliveries, lambda: runtime.receiving)
        assert (await deliveries.wait_for(event)).fate is Fate.UNDECODABLE
        assert (await deliveries.wait_for(neighbour)).fate is Fate.DONE
        assert [*deliveries.fates(event), *deliveries.fates(neighbour)] == [Fate.UNDECODABLE, Fate.DONE]
        assert (await stats(deliveries)).stored == 1


async def test_a_heartbeat_that_fails_is_told_each_time_until_one_succeeds(inbox_database: str) -> None:
    """The delivery goes on, and is done when the leases are there again."""
    desk = Desk()
    desk.open.clear()
    async with running(inbox_database, desk) as deliveries:
        event = deliveries.publish("order.paid")
        await until(deliveries, lambda: desk.entered == 1)
        with psycopg.connect(inbox_database, autocommit=True) as connection:
            connection.execute("alter table inbox_leases rename to hidden")
            await until(deliveries, lambda: len(of(deliveries, HeartbeatFailed)) >= 2)
            connection.execute("alter table hidden rename to inbox_leases")
        seen = len(of(deliveries, Heartbeat))
        await until(deliveries, lambda: len(of(deliveries, Heartbeat)) > seen)
        desk.open.set()
        await deliveries.wait_for(event)

    assert desk.entered == 1
    assert leases(inbox_database) == []


async def test_recovered_leases_are_in_the_statistics(inbox_database: str) -> None:
    """As many as a process that was killed has left."""
    desk = Desk()
    desk.open.clear()
    async with running(inbox_database, desk) as deliveries:
        events = [deliveries.publish("order.paid") for _ in range(2)]
        await until(deliveries, lambda: desk.entered == 2)
        await deliveries.crash()
        desk.open.set()
        await deliveries.advance(61)
        await deliveries.restart()
        for event in events:
            await deliveries.wait_for(event)
        found = await stats(deliveries)

    assert len(of(deliveries, LeaseRecovered)) == found.recovered == 2
    assert found.claimed == {"alone": 2}
