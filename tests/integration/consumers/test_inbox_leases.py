"""Who has a delivery of the inbox, and for how long: claims, leases and heartbeats as the database sees them."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Context, Received
from consumers.events import Fate, Heartbeat, OutcomeIgnored
from consumers.inbox.session import statement
from consumers.inbox.table import Identity, Table
from consumers.testing import Deliveries, in_memory
from relay.postgres.connect import connect_async
from tests.support.inbox import history, leases, row, rows
from tests.support.inbox_at_work import comes_about, happens, running
from tests.support.inbox_rows import store
from tests.support.sessions import count_statements

MANY = 10


class Desk:
    """A handler that holds what it gets until the test lets go."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.cancelled = 0
        self.release = asyncio.Event()

    async def __call__(self, event: Received[Any]) -> str:
        """Enter, wait and answer, also to a cancellation."""
        self.entered.append(event.data)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            return "an answer that comes too late"
        return "handled"


def held_by(deliveries: Deliveries) -> list[int]:
    """How many leases each heartbeat was for."""
    return [each.leases for each in deliveries.events if isinstance(each, Heartbeat)]


def taken_over(database: str) -> None:
    """Somebody else has all that was claimed, with tokens of its own."""
    with psycopg.connect(database) as connection:
        connection.execute("update inbox_deliveries set token = gen_random_uuid(), locked_by = 'other:1:b'")
        connection.execute(
            "update inbox_leases as lease set token = delivery.token from inbox_deliveries as delivery "
            "where delivery.id = lease.delivery_id"
        )


async def test_a_claim_says_who_has_it_with_which_token_and_for_how_long(inbox_database: str) -> None:
    """Sixty seconds from the claim on; when it is done, nobody has it."""
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        skew = deliveries.clock.monotonic()
        event = deliveries.publish("order.paid")
        await comes_about(lambda: bool(desk.entered), "it is handled")
        found, (lease,) = row(inbox_database, event), leases(inbox_database)
        desk.release.set()
        assert (await deliveries.wait_for(event)).fate is Fate.DONE

    assert (found["state"], found["attempt_count"]) == ("processing", 1)
    assert f":{os.getpid()}:" in found["locked_by"]
    assert lease["token"] == found["token"] is not None
    length = (lease["expires_at"] - found["started_at"]).total_seconds() - skew
    assert 55 < length < 65
    assert (row(inbox_database, event)["state"], leases(inbox_database)) == ("done", [])


@asynccontextmanager
async def table_of(database: str, owner: str, skew: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Table]:
    """The inbox, as a process of this name has it."""
    identity = Identity(consumer="billing", owner=owner, lease_seconds=60)
    table = Table(lambda: connect_async(database), "public", identity, skew=skew)
    try:
        yield table
    finally:
        await table.close()


@pytest.mark.parametrize("way", ["ready", "head", "suspect"])
async def test_what_is_not_due_yet_is_not_claimed(inbox_database: str, way: str) -> None:
    """By the database's clock, and whichever way it is claimed; when its time has come, it is."""
    time = 0.0
    keyed: dict[str, dict[str, Any]] = {"head": {"ordering_key": "k"}, "suspect": {"suspect": True}}
    columns = keyed.get(way, {})
    with psycopg.connect(inbox_database) as connection:
        ((due,),) = connection.execute("select now() + interval '30 s'").fetchall()
        id_ = store(connection, available_at=due, **columns)

    async with table_of(inbox_database, "a", lambda: time) as table:

        async def claimed() -> list[int]:
            match way:
                case "ready":
                    found = await table.claim_ready({"order.paid": 10}, 10)
                case "head":
                    heads = await table.walk("", 10)
                    assert [head.ready for head in heads] == [time > 0] * len(heads)
                    found = await table.claim_heads([head.id for head in heads])
                case _:
                    found = await table.claim_suspect(["order.paid"])
            return [each.owned.id for each in found]

        assert await claimed() == []
        time = 31.0
        assert await claimed() == [id_]


async def test_a_key_that_somebody_has_claimed_meanwhile_is_not_claimed_twice(inbox_database: str) -> None:
    """Two processes have found the same first delivery of a key."""
    with psycopg.connect(inbox_database) as connection:
        id_ = store(connection, ordering_key="k")
    async with table_of(inbox_database, "a") as first, table_of(inbox_database, "b") as second:
        heads = [[head.id for head in await table.walk("", 10) if head.ready] for table in (first, second)]
        claims = await asyncio.gather(first.claim_heads(heads[0]), second.claim_heads(heads[1]))

    assert heads == [[id_], [id_]]
    assert sorted(len(claimed) for claimed in claims) == [0, 1]


async def test_a_duplicate_that_comes_while_it_is_handled_is_not_handled_beside_it(inbox_database: str) -> None:
    """Neither in the same process nor in another one."""
    desk = Desk()
    async with running(inbox_database, desk) as first:
        event = first.publish("order.paid", "once")
        await comes_about(lambda: bool(desk.entered), "it is handled")
        consumer = Consumer("billing", dedup="inbox", timeout=None)
        consumer.on("order.*")(desk)
        async with in_memory(consumer, database=inbox_database, clock=first.clock) as second:
            first.repeat(event)
            second.publish("order.paid", "once", event_id=event)
            assert {(await each.wait_for(event)).fate for each in (first, second)} == {Fate.DUPLICATE}
            other = second.publish("order.paid", "other")
            await happens(second, lambda: "other" in desk.entered, "what came behind it is handled")
            desk.release.set()
            await second.wait_for(other) if second.fates(other) else await first.wait_for(event)
        assert first.fates(event) in ([Fate.DUPLICATE], [Fate.DUPLICATE, Fate.DONE])

    assert sorted(desk.entered) == ["once", "other"]
    assert [each["attempt_count"] for each in rows(inbox_database)] == [1, 1]


@pytest.mark.parametrize("ordered", [False, True])
async def test_no_more_is_claimed_than_may_begin(inbox_database: str, *, ordered: bool) -> None:
    """A permit first, then a row: there is never a lease more than permits, in all and of a heavy type."""
    with psycopg.connect(inbox_database) as connection:
        connection.execute("create table seen (heavy bigint, all_of_them bigint)")
        connection.execute(
            "create function look() returns trigger language plpgsql as $$ begin "
            "insert into seen select count(*) filter (where event_type = 'report.made'), count(*) "
            "from inbox_leases join inbox_deliveries on id = delivery_id; return null; end $$"
        )
        connection.execute(
            "create trigger look after insert on inbox_leases for each statement execute function look()"
        )
    consumer = Consumer("billing", dedup="inbox", concurrency=5)
    handled = 0

    async def handler(event: Received[Any]) -> None:
        nonlocal handled
        for _ in range(event.data % 5):
            await asyncio.sleep(0)
        handled += 1

    consumer.on("report.made", concurrency=2)(handler)
    consumer.on("order.*")(handler)
    async with in_memory(consumer, database=inbox_database) as deliveries:
        for number in range(60):
            event_type = "report.made" if number % 2 else "order.paid"
            deliveries.publish(event_type, number, ordering_key=f"k-{number}" if ordered else "")
        await happens(deliveries, lambda: handled == 60, "all are handled")

    with psycopg.connect(inbox_database) as connection:
        assert connection.execute("select max(heavy), max(all_of_them) from seen").fetchone() == (2, 5)


async def test_a_heavy_handler_leaves_the_others_their_permits(inbox_database: str) -> None:
    """It takes two of ten, however much of it waits; and what waits for it is no one's, and loses no time by that."""
    light: list[Any] = []
    consumer = Consumer("billing", dedup="inbox", timeout="10s")

    @consumer.on("report.made", concurrency=2)
    async def make(event: Received[Any]) -> None:
        await deliveries.clock.sleep(8)

    @consumer.on("order.paid")
    async def book(event: Received[Any]) -> None:
        light.append(event.data)

    async with in_memory(consumer, database=inbox_database) as deliveries:
        reports = [deliveries.publish("report.made") for _ in range(6)]
        orders = [deliveries.publish("order.paid", number) for number in range(20)]
        for order in orders:
            await deliveries.wait_for(order)
        assert sum(each["state"] == "processing" for each in rows(inbox_database)) == 2
        await happens(deliveries, lambda: all(deliveries.fates(report) for report in reports), "the reports are made")

    assert [deliveries.fates(report) for report in reports] == [[Fate.DONE]] * 6
    assert {each["attempt_count"] for each in rows(inbox_database)} == {1}
    assert deliveries.clock.monotonic() >= 3 * 8


async def test_every_fifteen_seconds_one_statement_renews_all_leases(inbox_database: str) -> None:
    """Ten handlers run for three leases: twelve heartbeats, each for all ten, and nobody else gets them."""
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        count_statements(connection)
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        events = [deliveries.publish("order.paid", number) for number in range(MANY)]
        await comes_about(lambda: len(desk.entered) == MANY, "all are handled")
        for beat in range(1, 13):
            await deliveries.advance(15)
            await comes_about(lambda: len(held_by(deliveries)) >= beat, "the heartbeat was answered")  # noqa: B023 -- waited for at once
        with psycopg.connect(inbox_database) as connection:
            ((calls,),) = connection.execute(
                "select sum(calls) from pg_stat_statements where strpos(query, %s) > 0 "
                "and dbid = (select oid from pg_database where datname = current_database())",
                [statement("renew").decode().splitlines()[0]],
            ).fetchall()
        desk.release.set()
        assert {(await deliveries.wait_for(event)).fate for event in events} == {Fate.DONE}

    assert (calls, held_by(deliveries)) == (12, [MANY] * 12)
    assert len(desk.entered) == MANY
    assert history(inbox_database, events[0]) == ["created", "processing", "done"]


async def test_a_lease_that_was_lost_cancels_its_handler_whose_answer_is_discarded(inbox_database: str) -> None:
    """With the next heartbeat, and not when the lease would have ended."""
    desk = Desk()
    async with running(inbox_database, desk) as deliveries:
        event = deliveries.publish("order.paid")
        await comes_about(lambda: bool(desk.entered), "it is handled")
        taken_over(inbox_database)
        await deliveries.advance(15.1)
        assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST
        found = row(inbox_database, event)

    assert (desk.cancelled, len(desk.entered)) == (1, 1)
    assert (found["state"], found["locked_by"], found["result"]) == ("processing", "other:1:b", None)
    assert history(inbox_database, event) == ["created", "processing"]


async def test_what_a_thread_says_of_a_lost_delivery_is_discarded_and_told(inbox_database: str) -> None:
    """It cannot be cancelled; its result is not written over that of whoever has the delivery now."""
    inside, release = threading.Event(), threading.Event()

    def handler(event: Received[Any]) -> str:
        inside.set()
        release.wait()
        return "too late"

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        await comes_about(inside.is_set, "it is handled")
        taken_over(inbox_database)
        release.set()
        assert (await deliveries.wait_for(event)).fate is Fate.LEASE_LOST
        (ignored,) = [each for each in deliveries.events if isinstance(each, OutcomeIgnored)]

    found = row(inbox_database, event)
    assert (ignored.answer, ignored.completed) == ("Done", False)
    assert (found["state"], found["locked_by"], found["result"]) == ("processing", "other:1:b", None)


async def test_a_handler_ends_before_its_lease_where_nobody_can_renew_it(inbox_database: str) -> None:
    """By our own clock, which was read before the database's: nobody else can have begun by then."""
    entered: list[float] = []
    cancelled: list[float] = []

    async def handler(event: Received[Any]) -> None:
        entered.append(deliveries.clock.monotonic())
        try:
            while not cancelled:
                await asyncio.Event().wait()
        finally:
            cancelled.append(deliveries.clock.monotonic())

    async with running(inbox_database, handler) as deliveries:
        event = deliveries.publish("order.paid")
        await comes_about(lambda: bool(entered), "it is handled")
        with psycopg.connect(inbox_database, autocommit=True) as connection:
            connection.execute("alter table inbox_leases rename to hidden")
            await deliveries.advance(entered[0] + 59 - deliveries.clock.monotonic())
            assert not cancelled
            await happens(deliveries, lambda: bool(cancelled), "it is cancelled")
            connection.execute("alter table hidden rename to inbox_leases")
        await happens(deliveries, lambda: Fate.DONE in deliveries.fates(event), "it is handled again")

    assert 59 < cancelled[0] - entered[0] <= 60


async def test_after_its_completion_a_delivery_is_renewed_no_longer(inbox_database: str) -> None:
    """Its handler goes on for as long as it likes, and is not cancelled for a lease that it does not need."""
    completed, release = asyncio.Event(), asyncio.Event()

    async def handler(event: Received[Any], ctx: Context) -> None:
        if event.data == "completed":
            async with ctx.transaction() as connection:
                await ctx.complete(connection)
            completed.set()
        await release.wait()

    async with running(inbox_database, handler) as deliveries:
        first, second = (deliveries.publish("order.paid", data) for data in ("completed", "held"))
        await comes_about(lambda: completed.is_set() and len(leases(inbox_database)) == 1, "one is completed")
        for beat in range(1, 7):
            await deliveries.advance(15)
            await comes_about(lambda: len(held_by(deliveries)) >= beat, "the heartbeat was answered")  # noqa: B023 -- waited for at once
        release.set()
        assert [(await deliveries.wait_for(event)).fate for event in (first, second)] == [Fate.DONE, Fate.DONE]

    assert held_by(deliveries) == [1] * 6
    assert [each["attempt_count"] for each in rows(inbox_database)] == [1, 1]
