"""The consumer: renders the invoice of an order, and mails it."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from consumers import Consumer, Context, FatalError, Received, TransientError
from relay import Event, emit


@asynccontextmanager
async def provider() -> AsyncIterator[httpx.AsyncClient]:
    """What handlers find in `ctx.state`: the way to the mail provider."""
    async with httpx.AsyncClient(base_url=os.environ["MAIL_PROVIDER_URL"]) as client:
        yield client


invoices = Consumer("invoices", dedup="inbox", source="outbox", lifespan=provider)


@invoices.on("order.placed", concurrency=2)
def render(event: Received[Any], ctx: Context) -> None:
    """Store the invoice and the event that announces it, and complete the delivery: all of that, or nothing."""
    number = event.data["order_id"]
    with ctx.transaction() as connection:
        address, cents = connection.execute("select address, cents from orders where id = %s", (number,)).fetchone()
    if address is None:
        raise FatalError(f"order {number} has no address to write an invoice to", code="ADDRESS_MISSING")
    pdf = drawn(number, address, cents)  # outside of any transaction: it takes its time
    data = {"order_id": number, "to": address}
    rendered = Event(event_type="invoice.rendered", aggregate_type="order", aggregate_id=str(number), data=data)
    with ctx.transaction() as connection:
        connection.execute("insert into invoices (order_id, pdf) values (%s, %s)", (number, pdf))
        emit(connection, rendered)
        ctx.complete(connection)


@invoices.on("invoice.rendered")
async def mail(event: Received[Any], ctx: Context) -> None:
    """Have the provider mail it, who knows it again by the event's id: that is the same in every attempt."""
    email = {"to": event.data["to"], "subject": f"Your invoice for order {event.data['order_id']}"}
    answer = await ctx.state.post("/emails", json=email, headers={"Idempotency-Key": str(event.event_id)})
    if answer.is_error:
        wrong = TransientError if answer.is_server_error else FatalError
        raise wrong(f"the mail provider answers {answer.status_code}", code="NOT_MAILED")


def drawn(number: int, address: str, cents: int) -> bytes:
    """An invoice, the same bytes for the same order; a PDF from afar. It takes its time, as fonts do."""
    text = f"Invoice for order {number}\n{address}\n{cents // 100}.{cents % 100:02} EUR\n"
    seal = hashlib.pbkdf2_hmac("sha256", text.encode(), b"invoices", 100_000).hex()
    return f"%PDF-1.4\n{text}% {seal}\n%%EOF\n".encode()
