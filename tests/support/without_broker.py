"""Consumers that receive from an outbox, at work in a test: their own processes' worth of runtimes, in real time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
from pydantic import SecretStr

from consumers import Consumer, Received
from consumers.company import Company
from consumers.events import ConsumerStarted
from consumers.inbox.moving import moving_statement
from consumers.settings import Settings
from consumers.sources.outbox import OutboxFeed
from consumers.wiring import backstage
from relay import emit
from relay.kernel.clock import SystemClock
from relay.postgres.connect import connect_async
from tests.support.outbox import event

POLL = 0.05
# Nobody waits for it: whoever has something by then was told of it.
NEVER = 600.0


def settings_of(url: str, poll: float = POLL, **changed: Any) -> Settings:
    """Past the environment: a developer's .env must not reach the tests."""
    values = {"database_url": SecretStr(url), "inbox_poll_ms": timedelta(seconds=poll)}
    return Settings.model_construct(**{**values, **changed})


def taking(name: str, handler: Callable[..., Any], *patterns: str, **options: Any) -> Consumer:
    """A consumer of an outbox; of orders unless it says otherwise."""
    consumer = Consumer(name, dedup="inbox", source="outbox", **options)
    for pattern in patterns or ("order.*",):
        consumer.on(pattern, version="any")(handler)
    return consumer


def noting(seen: list[Received[Any]]) -> Callable[[Received[Any]], Any]:
    """A handler that keeps what it gets."""

    async def handler(event: Received[Any]) -> None:
        seen.append(event)

    return handler


@asynccontextmanager
async def at_work(
    url: str, *consumers: Consumer, told: list[object] | None = None, poll: float = POLL, **changed: Any
) -> AsyncIterator[None]:
    """A process of these consumers, from the moment when all receive."""
    stopping, started = asyncio.Event(), asyncio.Semaphore(0)

    def observe(each: object) -> None:
        if told is not None:
            told.append(each)
        if isinstance(each, ConsumerStarted):
            started.release()

    async with AsyncExitStack() as stack:
        supplies = await stack.enter_async_context(
            backstage(consumers, settings_of(url, poll, **changed), outlived=False)
        )
        company = Company(consumers, supplies, observe, SystemClock(), soft_timeout=10.0, stats_seconds=NEVER)
        work = asyncio.create_task(company.work(stopping))
        begun = asyncio.create_task(_acquired(started, len(consumers)))
        try:
            await asyncio.wait([work, begun], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                yield
        finally:
            begun.cancel()
            stopping.set()
            await work


@asynccontextmanager
async def feeding(url: str, consumer: str = "billing", patterns: str = "{*}") -> AsyncIterator[OutboxFeed]:
    """Whatever moves events, in the test's hand; its consumer subscribes."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into inbox_subscribers (consumer, patterns) values (%s, %s) on conflict do nothing",
            [consumer, patterns],
        )
    feed = OutboxFeed(
        lambda: connect_async(url), "public", moving_statement("public"), consumer=consumer, observe=lambda _: None
    )
    try:
        yield feed
    finally:
        await feed.close()


async def drained(*feeds: OutboxFeed) -> int:
    """Let them move side by side until none finds anything; answer with how many events that were."""
    total = 0
    while True:
        done = await asyncio.gather(*(feed.move() for feed in feeds))
        total += sum(each.events for each in done)
        if not any(each.events or each.more for each in done):
            return total


def emitted(url: str, *numbers: int, **fields: Any) -> list[str]:
    """Commit events; answer with their ids."""
    with psycopg.connect(url) as connection:
        return [str(each.event_id) for each in emit(connection, [event(number, **fields) for number in numbers])]


def asked(url: str, statement: str, *values: object) -> list[Any]:
    """What the database answers."""
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


async def _acquired(semaphore: asyncio.Semaphore, times: int) -> None:
    for _ in range(times):
        await semaphore.acquire()
