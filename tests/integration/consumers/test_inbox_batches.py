"""Batches out of an inbox: claimed together, called together, each ended by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from consumers import Consumer, Context, Fixed, Received, Retry, Sent, Ticket
from consumers.events import ClaimMade, Fate, LeaseRecovered, TicketSettled
from consumers.testing import Deliveries, in_memory
from tests.support.inbox import history, leases, row, rows
from tests.support.inbox_at_work import goes_by

Events = list[Received[Any]]
Contexts = list[Context]


async def until(deliveries: Deliveries, condition: Callable[[], Any]) -> None:
    """Have time go by until it is so."""
    await goes_by(deliveries, 0.25, condition)


async def test_a_backlog_is_claimed_and_called_by_the_hundred(inbox_database: str) -> None:
    """Not row by row: a claim brings as many as a call takes, whatever the consumer's concurrency."""
    consumer = Consumer("push", dedup="inbox", concurrency=2)
    sizes: list[int] = []

    @consumer.on("push.due", batch=100)
    async def send(events: Events) -> list[Any]:
        sizes.append(len(events))
        return [Retry("odd") if event.data % 2 and len(sizes) < 99 else {"n": event.data} for event in events]

    async with in_memory(consumer, database=inbox_database) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(250)]
        await until(deliveries, lambda: len(deliveries.settled) == 250)

    assert sum(sizes) == 250
    assert max(sizes) == 100
    assert len(sizes) <= 6
    claims = [event for event in deliveries.events if isinstance(event, ClaimMade) and event.found]
    assert len(claims) <= 8
    found = {each["event_id"]: each for each in rows(inbox_database)}
    assert [found[event]["state"] for event in events] == ["done", "pending"] * 125
    assert found[events[2]]["result"] == {"n": 2}
    assert {each["attempt_count"] for each in found.values()} == {1}
    assert history(inbox_database, events[1]) == ["created", "processing", "retry"]


async def test_a_batch_takes_no_permit_from_others_and_they_none_from_it(inbox_database: str) -> None:
    """A permit comes first, then a row, for each of the two; with a key and without."""
    consumer = Consumer("push", dedup="inbox", concurrency=2)
    go = asyncio.Event()
    now = {"batch": 0, "order": 0}

    @consumer.on("push.due", batch=10)
    async def send(events: Events) -> None:
        now["batch"] += len(events)
        await go.wait()

    @consumer.on("order.*")
    async def order(event: Received[Any]) -> None:
        now["order"] += 1
        await go.wait()

    def processing() -> dict[str, int]:
        types = [each["event_type"] for each in rows(inbox_database) if each["state"] == "processing"]
        return {name: types.count(name) for name in set(types)}

    async with in_memory(consumer, database=inbox_database) as deliveries:
        for n in range(15):
            deliveries.publish("push.due", n, ordering_key=f"k{n}" if n % 2 else "")
            deliveries.publish("order.paid", n, ordering_key=f"o{n}" if n % 2 else "")
        await until(deliveries, lambda: processing() == {"push.due": 10, "order.paid": 2})
        await deliveries.advance(3.0)
        assert processing() == {"push.due": 10, "order.paid": 2}
        assert now["order"] == 2
        go.set()
        await until(deliveries, lambda: not deliveries.pending)

    assert now == {"batch": 15, "order": 15}


async def test_a_batch_that_its_process_died_with_comes_again_one_by_one(inbox_database: str) -> None:
    """If one of them was at fault, no other pays for it; nobody is charged for a crash beside others."""
    consumer = Consumer("push", dedup="inbox", retry=Fixed("1s", max_attempts=3))
    sizes: list[tuple[int, list[int]]] = []
    blocked = asyncio.Event()

    @consumer.on("push.due", batch=10)
    async def send(events: Events, contexts: Contexts) -> None:
        sizes.append((len(events), [context.attempt for context in contexts]))
        if len(sizes) == 1:
            await blocked.wait()

    async with in_memory(consumer, database=inbox_database) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(4)]
        await until(deliveries, lambda: sizes)
        await deliveries.crash()
        await deliveries.restart()
        await until(deliveries, lambda: not deliveries.pending)

    assert sizes == [(4, [1] * 4), *[(1, [1])] * 4]
    assert sum(isinstance(event, LeaseRecovered) for event in deliveries.events) == 4
    assert history(inbox_database, events[0]) == ["created", "processing", "requeued:stale", "processing", "done"]
    assert leases(inbox_database) == []


async def test_a_providers_answer_to_a_batch_is_each_ones_ticket(inbox_database: str) -> None:
    """Sent together, confirmed together, each by its own name."""
    consumer = Consumer("push", dedup="inbox")

    @consumer.on("article.published")
    async def article(event: Received[Any], ctx: Context) -> None:
        await ctx.fan_out(f"u{n}" for n in range(5))

    @consumer.each("article.published", batch=100)
    async def send(events: Events) -> list[Any]:
        return [Retry("too many", delay="1h") if event.recipient == "u3" else Sent(event.recipient) for event in events]

    @consumer.confirm("article.published", every="5s")
    async def confirm(tickets: list[Ticket]) -> list[None]:
        assert [each.ticket for each in tickets] == [each.recipient for each in tickets]
        return [None] * len(tickets)

    async with in_memory(consumer, database=inbox_database) as deliveries:
        deliveries.publish("article.published")
        await until(deliveries, lambda: sum(isinstance(event, TicketSettled) for event in deliveries.events) == 4)

    found = {each["recipient"]: each["state"] for each in rows(inbox_database)}
    assert found == {"": "done", "u0": "done", "u1": "done", "u2": "done", "u3": "pending", "u4": "done"}


async def test_a_batch_has_its_effects_exactly_once(inbox_database: str) -> None:
    """Each context completes its own event, all of them in one transaction."""
    consumer = Consumer("push", dedup="inbox")
    with psycopg.connect(inbox_database) as connection:
        connection.execute("create table booked (n integer primary key)")

    @consumer.on("push.due", batch=10)
    async def book(events: Events, contexts: Contexts) -> None:
        async with contexts[0].transaction() as connection:
            for event, ctx in zip(events, contexts, strict=True):
                await connection.execute("insert into booked values (%s)", [event.data])
                await ctx.complete(connection)
            if contexts[0].attempt == 1:
                raise OSError("before the commit")

    async with in_memory(consumer, database=inbox_database) as deliveries:
        events = [deliveries.publish("push.due", n) for n in range(4)]
        assert [(await deliveries.wait_for(event)).fate for event in events] == [Fate.RETRIED] * 4
        await deliveries.advance(5.1)
        assert [(await deliveries.wait_for(event)).fate for event in events] == [Fate.DONE] * 4

    assert {row(inbox_database, event)["attempt_count"] for event in events} == {2}
