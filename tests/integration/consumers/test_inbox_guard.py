"""Handlers that look again at what their event tells of: what is no longer so is skipped, and nothing is done."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from consumers import Consumer, Context, Received
from consumers.events import Fate
from consumers.testing import Deliveries, in_memory
from tests.support.inbox import history, row
from tests.support.waiting import until_async

STOCK = """
create table stock (sku text primary key, qty integer, threshold integer);
insert into stock values ('a', 3, 5);
create table orders (sku text)
"""
Handler = Callable[[Received[Any], Context], Any]


@pytest.fixture
def stocked(inbox_database: str) -> str:
    """A database with a table that events tell of."""
    with psycopg.connect(inbox_database) as connection:
        connection.execute(STOCK)
    return inbox_database


@asynccontextmanager
async def running(database: str, handler: Handler) -> AsyncIterator[Deliveries]:
    """A consumer of what runs low."""
    consumer = Consumer("purchasing", dedup="inbox")
    consumer.on("stock.low")(handler)
    async with in_memory(consumer, database=database) as deliveries:
        yield deliveries


def low(row: Any) -> bool:
    """Whether it still does."""
    return bool(row["qty"] < row["threshold"])


async def order(event: Received[Any], ctx: Context) -> None:
    """The usual handler: look, order, complete."""
    async with ctx.transaction() as connection:
        found = await ctx.guard(
            connection, "stock", {"sku": event.data["sku"]}, columns=["threshold"], still=low, lock="share"
        )
        await connection.execute("insert into orders values (%s)", [found["sku"]])
        await ctx.complete(connection)


def order_in_thread(event: Received[Any], ctx: Context) -> None:
    """The same as a plain function."""
    with ctx.transaction() as connection:
        found = ctx.guard(
            connection, "stock", {"sku": event.data["sku"]}, columns=["threshold"], still=low, lock="share"
        )
        connection.execute("insert into orders values (%s)", [found["sku"]])
        ctx.complete(connection)


def ordered(database: str) -> int:
    """How much was ordered."""
    with psycopg.connect(database) as connection:
        ((count,),) = connection.execute("select count(*) from orders").fetchall()
    return int(count)


def detail(database: str, event: object) -> Any:
    """Of the last entry in its history."""
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select detail from inbox_history h join inbox_deliveries d on d.id = delivery_id where event_id = %s "
            "order by h.id desc limit 1",
            [event],
        ).fetchone()
    return found[0] if found else None


WATCHED = {"sku": "a", "watched": {"qty": 3}}


@pytest.mark.parametrize("handler", [order, order_in_thread], ids=["coroutine", "plain function"])
async def test_what_is_still_so_is_acted_on(stocked: str, handler: Handler) -> None:
    """Once, and completed with it."""
    async with running(stocked, handler) as deliveries:
        event = deliveries.publish("stock.low", WATCHED)
        assert (await deliveries.wait_for(event)).fate is Fate.DONE
    assert ordered(stocked) == 1


@pytest.mark.parametrize("handler", [order, order_in_thread], ids=["coroutine", "plain function"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("delete from stock", "gone: stock has no such row any more"),
        ("update stock set qty = 9", "condition: the row of stock does not meet the condition any more"),
        ("update stock set qty = 2", "changed: qty of the row of stock"),
    ],
)
async def test_what_is_no_longer_so_is_skipped(stocked: str, handler: Handler, change: str, reason: str) -> None:
    """Its transaction is rolled back; the delivery is completed, and history says which of the three it was."""
    with psycopg.connect(stocked) as connection:
        connection.execute(change.encode())
    async with running(stocked, handler) as deliveries:
        event = deliveries.publish("stock.low", WATCHED)
        settled = await deliveries.wait_for(event)
    assert (settled.fate, settled.reason) == (Fate.SKIPPED, reason)
    found = row(stocked, event)
    assert (found["state"], found["outcome"], found["attempt_count"]) == ("done", "skipped", 1)
    assert history(stocked, event) == ["created", "processing", "skipped"]
    assert detail(stocked, event) == {"reason": reason}
    assert ordered(stocked) == 0


async def test_a_guard_behind_the_completion_takes_both_back(stocked: str) -> None:
    """Nothing was committed, so nothing is completed by it."""

    async def handler(event: Received[Any], ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into orders values ('a')")
            await ctx.complete(connection, "ordered")
            await ctx.guard(connection, "stock", {"sku": "other"})

    async with running(stocked, handler) as deliveries:
        event = deliveries.publish("stock.low", WATCHED)
        assert (await deliveries.wait_for(event)).fate is Fate.SKIPPED
    assert ordered(stocked) == 0
    assert row(stocked, event)["result"] is None


async def _in_a_group(event: Received[Any], ctx: Context) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(order(event, ctx))
        tasks.create_task(asyncio.Event().wait())


async def _with_a_broad_except(event: Received[Any], ctx: Context) -> None:
    with suppress(Exception):
        await order(event, ctx)


async def _in_a_stage(event: Received[Any], ctx: Context) -> None:
    async with ctx.stage("order"):
        await order(event, ctx)


@pytest.mark.parametrize("handler", [_in_a_group, _with_a_broad_except, _in_a_stage])
async def test_nothing_of_the_handlers_own_keeps_it_from_being_skipped(stocked: str, handler: Handler) -> None:
    """Not `except Exception`, no group of tasks and no stage."""
    with psycopg.connect(stocked) as connection:
        connection.execute("delete from stock")
    async with running(stocked, handler) as deliveries:
        event = deliveries.publish("stock.low", WATCHED)
        settled = await deliveries.wait_for(event)
    assert (settled.fate, settled.reason[:5]) == (Fate.SKIPPED, "gone:")


async def test_beside_another_error_it_is_none(stocked: str) -> None:
    """What failed is tried again."""

    async def handler(event: Received[Any], ctx: Context) -> None:
        async def fail() -> None:
            raise OSError("away")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            tasks.create_task(order(event, ctx))

    with psycopg.connect(stocked) as connection:
        connection.execute("delete from stock")
    async with running(stocked, handler) as deliveries:
        event = deliveries.publish("stock.low", WATCHED)
        assert (await deliveries.wait_for(event)).fate is Fate.RETRIED


@pytest.mark.parametrize("data", [None, [], {"sku": "a"}, {"sku": "a", "watched": ["qty"]}])
async def test_an_event_that_watches_nothing_says_so(stocked: str, data: Any) -> None:
    """Whatever its data is; existence and condition are compared all the same."""
    seen: list[Any] = []

    async def handler(event: Received[Any], ctx: Context) -> None:
        seen.append(ctx.watched)
        async with ctx.transaction() as connection:
            await ctx.guard(connection, "stock", {"sku": "a"})
            await ctx.guard(connection, "stock", {"sku": "a"}, watched={"qty": 4})

    async with running(stocked, handler) as deliveries:
        settled = await deliveries.wait_for(deliveries.publish("stock.low", data))
    assert seen == [{}]
    assert settled.reason == "changed: qty of the row of stock"


@pytest.mark.parametrize("dedup", ["claim", "none"])
async def test_it_needs_no_inbox(stocked: str, dedup: Any) -> None:
    """A connection of the handler's own will do, in whatever mode."""

    async def handler(event: Received[Any], ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(stocked) as connection:
            await ctx.guard(connection, "stock", {"sku": "a"})

    consumer = Consumer("purchasing", subscription="stock", dedup=dedup)
    consumer.on("stock.low")(handler)
    async with in_memory(consumer) as deliveries:
        assert (await deliveries.wait_for(deliveries.publish("stock.low", WATCHED))).fate is Fate.DONE
        settled = await deliveries.wait_for(deliveries.publish("stock.low", {"watched": {"qty": 2}}))
    assert (settled.fate, settled.reason) == (Fate.SKIPPED, "changed: qty of the row of stock")


async def test_a_row_that_is_changed_while_it_is_waited_for_is_read_as_it_is_then(stocked: str) -> None:
    """A lock waits for whoever changes the row, and sees what that one has committed."""
    entered = asyncio.Event()

    async def handler(event: Received[Any], ctx: Context) -> None:
        entered.set()
        await order(event, ctx)

    with psycopg.connect(stocked) as seller, psycopg.connect(stocked, autocommit=True) as spectator:
        seller.execute("update stock set qty = 9")
        async with running(stocked, handler) as deliveries:
            event = deliveries.publish("stock.low", WATCHED)
            await entered.wait()
            await _blocked(spectator)
            seller.commit()
            settled = await deliveries.wait_for(event)
    assert settled.reason.startswith("condition")
    assert ordered(stocked) == 0


async def _blocked(spectator: psycopg.Connection[Any]) -> None:
    """Wait until somebody waits for a row of the stock."""
    query = (
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and query like '%stock%'"
    )

    async def blocked() -> bool:
        return bool(spectator.execute(query).fetchall())

    await until_async(blocked, "the handler waits for the row")
