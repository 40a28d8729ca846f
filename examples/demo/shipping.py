"""The consumer: one shipment for every order, however often its event is delivered."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from pydantic import BaseModel

from consumers import Consumer, Context, Received


class Paid(BaseModel):
    """What an `order.paid` says."""

    order_id: int
    amount: int


@asynccontextmanager
async def connected() -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection for as long as the consumer runs; each statement commits by itself."""
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        yield connection


shipping = Consumer("shipping", lifespan=connected)


@shipping.on("order.paid", model=Paid)
async def ship(event: Received[Paid], ctx: Context) -> None:
    """Ship. Nothing but the consumer's deduplication keeps an order from being shipped twice."""
    await ctx.state.execute("insert into shipments values (%s)", (event.data.order_id,))
