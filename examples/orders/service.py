"""The service that emits: an order and the event that announces it are one transaction."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field

from relay import Actor, Event, emit_async

TABLES = """
create table if not exists orders (
  id bigint generated always as identity primary key, customer text not null, cents integer not null
);
create table if not exists invoices (
  -- What the consumer promises beyond its deduplication: one invoice for an event, also where it was killed between
  -- its effect and its completion.
  event_id uuid primary key, order_id bigint not null, cents integer not null
);
"""

service = FastAPI(title="orders")


class Order(BaseModel):
    """What a customer asks for."""

    customer: Annotated[str, Field(min_length=1, max_length=100)]
    cents: Annotated[int, Field(gt=0)]


async def database() -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection for one request; what is not committed when the request fails is gone."""
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as connection:
        yield connection


Database = Annotated[psycopg.AsyncConnection, Depends(database)]


@service.post("/orders", status_code=201)
async def place(order: Order, connection: Database) -> dict[str, int]:
    """Store the order and its event, both or neither."""
    async with connection.transaction():
        cursor = await connection.execute(
            "insert into orders (customer, cents) values (%s, %s) returning id", (order.customer, order.cents)
        )
        (number,) = await cursor.fetchone() or (0,)
        await emit_async(
            connection,
            Event(
                event_type="order.placed",
                aggregate_type="order",
                aggregate_id=str(number),
                ordering_key=order.customer,
                actor=Actor(type="customer", id=order.customer),
                data={"order_id": number, "cents": order.cents},
            ),
        )
    return {"order_id": number}


@service.get("/orders/{number}/invoice")
async def invoice(number: int, connection: Database) -> dict[str, int]:
    """The invoice of an order, as soon as there is one."""
    cursor = await connection.execute("select cents from invoices where order_id = %s", (number,))
    if (row := await cursor.fetchone()) is None:
        raise HTTPException(404, "there is no invoice yet")
    return {"order_id": number, "cents": row[0]}
