"""The service: orders come in over HTTP, and whoever wants the invoice of one waits for it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Body, FastAPI, HTTPException, Request, Response
from psycopg_pool import AsyncConnectionPool

from consumers.settings import load
from consumers.waiting import Enqueued, Refusal, Waiting, enqueue, wait_response
from relay import Event, emit_async

Address = Annotated[str | None, Body(min_length=1, max_length=200)]
REFUSALS = {"ADDRESS_MISSING": Refusal("INVOICE_ADDRESS_MISSING", "The order has no address to write an invoice to.")}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """What requests find in their state: connections, and what waits for all clients over two of its own."""
    async with AsyncConnectionPool(os.environ["DATABASE_URL"], open=False) as pool, Waiting.of(load()) as waiting:
        yield {"pool": pool, "waiting": waiting}


service = FastAPI(title="invoices", lifespan=lifespan)


@service.post("/orders", status_code=201)
async def place(request: Request, cents: Annotated[int, Body(gt=0)], address: Address = None) -> dict[str, int]:
    """Store the order and its event, both or neither."""
    insert = "insert into orders (address, cents) values (%s, %s) returning id, event_id"
    async with request.state.pool.connection() as connection:  # one transaction
        number, event_id = await (await connection.execute(insert, (address, cents))).fetchone()
        what: Any = {"event_type": "order.placed", "aggregate_type": "order", "aggregate_id": str(number)}
        await emit_async(connection, Event(event_id=event_id, data={"order_id": number}, **what))
    return {"order_id": number}


@service.get("/orders/{number}/invoice")
async def invoice(number: int, request: Request) -> Response:
    """The invoice, for which a client waits as long as its `waitMs` says. Your own check, whose it is, goes here."""
    pool = request.state.pool
    if (pdf := await stored(pool, number)) is None:
        answer = await wait_response(request.state.waiting, request, await asked_for(pool, number), failures=REFUSALS)
        if answer.status_code != HTTPStatus.OK:
            return answer
        pdf = await stored(pool, number)
    return Response(pdf, media_type="application/pdf")


async def stored(pool: AsyncConnectionPool, number: int) -> bytes | None:
    """The invoice of an order, where it is rendered."""
    async with pool.connection() as connection:
        cursor = await connection.execute("select pdf from invoices where order_id = %s", (number,))
        row = await cursor.fetchone()
    return row[0] if row else None


async def asked_for(pool: AsyncConnectionPool, number: int) -> Enqueued:
    """The delivery that renders it: that of the order's event, whether or not the event has come to the inbox yet."""
    async with pool.connection() as connection:
        cursor = await connection.execute("select event_id from orders where id = %s", (number,))
        if (row := await cursor.fetchone()) is None:
            raise HTTPException(404, f"there is no order {number}")
        work: Any = {"consumer": "invoices", "event_type": "order.placed", "data": {"order_id": number}}
        return await enqueue(connection, event_id=row[0], **work)
