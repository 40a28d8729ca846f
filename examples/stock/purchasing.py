"""The consumer: one order for each time that a product has run low, unless it has recovered."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from consumers import Consumer, Context, Defer, Received


@asynccontextmanager
async def supplied() -> AsyncIterator[httpx.AsyncClient]:
    """What handlers find in `ctx.state`: the supplier."""
    async with httpx.AsyncClient(base_url=os.environ["SUPPLIER_URL"]) as supplier:
        yield supplier


purchasing = Consumer("purchasing", dedup="inbox", source="outbox", lifespan=supplied)


@purchasing.on("stock.low")
async def reorder(event: Received[Any], ctx: Context) -> Defer | None:
    """Order as much as makes it full, under a name that is the same in every attempt."""
    sku, crossing = event.data["sku"], ctx.watched["crossing"]
    name = f"{sku}-{crossing}"
    # An attempt that died may have placed it. Then it is only to be recorded, however the stock is by now.
    answer = await ctx.state.get(name)
    if answer.status_code == httpx.codes.NOT_FOUND:
        async with ctx.transaction() as connection:
            row = await ctx.guard(connection, "stock", {"sku": sku}, columns=["threshold"], still=is_low)
        answer = await ctx.state.put(name, json={"qty": 2 * row["threshold"] - row["qty"]})
    match answer.status_code:
        case httpx.codes.TOO_MANY_REQUESTS:
            return ctx.defer(float(answer.headers["Retry-After"]))
        case httpx.codes.SERVICE_UNAVAILABLE:
            ctx.throttle_all("500ms")
            return ctx.defer("500ms")
    answer.raise_for_status()
    async with ctx.transaction() as connection:
        await connection.execute(
            "insert into orders (sku, crossing, qty) values (%s, %s, %s) on conflict do nothing",
            (sku, crossing, answer.json()["qty"]),
        )
        await ctx.complete(connection)
    return None


def is_low(row: dict[str, Any]) -> bool:
    """Whether the product still is."""
    return bool(row["qty"] < row["threshold"])
