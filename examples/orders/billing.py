"""The consumer: one invoice for every order, however often its event is delivered."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from pydantic import BaseModel

from consumers import Consumer, Context, FatalError, Received


class Placed(BaseModel):
    """What an `order.placed` says."""

    order_id: int
    cents: int


@asynccontextmanager
async def connected() -> AsyncIterator[psycopg.AsyncConnection]:
    """What handlers find in `ctx.state`: a connection for as long as the consumer runs."""
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        yield connection


billing = Consumer("billing", subscription="billing", lifespan=connected)


@billing.on("order.placed", model=Placed)
async def write_invoice(event: Received[Placed], ctx: Context) -> None:
    """Write the invoice."""
    order = event.data
    if order.cents > 1_000_000:  # noqa: PLR2004 -- whoever orders for so much is called first
        raise FatalError(f"order {order.order_id} is too large to be billed without asking", code="TOO_LARGE")
    await ctx.state.execute(
        "insert into invoices (event_id, order_id, cents) values (%s, %s, %s) on conflict do nothing",
        (event.event_id, order.order_id, order.cents),
    )
