"""A reconciliation and what it works with, built from what a command knows."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from consumers.clock import SystemClock
from consumers.handlers import Handlers
from consumers.inbox.building import examined
from consumers.inbox.origins import Origin, Outbox, Own, Reader
from consumers.inbox.reconciling import Progress, Reconciliation
from consumers.inbox.session import Session
from consumers.missing import TellMissing
from consumers.sharding import ShardKey
from relay.postgres.connect import connect_async


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Where the inbox is, and the outbox beside it."""

    url: str
    app: str
    schema: str
    outbox_schema: str
    retention: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """What is known of the consumer."""

    consumer: str
    handlers: Handlers
    shard_key: ShardKey
    tell: TellMissing | None
    """What tells its events; without it, the outbox does."""


@asynccontextmanager
async def reconciliation(
    books: Books, whose: Whose, *, page: int, progress: Progress, complain: Callable[[str], None]
) -> AsyncIterator[Reconciliation]:
    """While the block runs. Raises ConfigurationError without an inbox, StoreUnavailableError where it is away."""
    connect = partial(connect_async, books.url, books.app)
    async with AsyncExitStack() as stack:

        def session(schema: str) -> Session:
            made = Session(connect, schema, lambda: 0.0)
            stack.push_async_callback(made.close)
            return made

        await examined(connect, books.schema)
        reader = Reader(whose.handlers, whose.shard_key)
        if whose.tell is None:
            origin: Origin = Outbox(session(books.outbox_schema), books.outbox_schema, reader, SystemClock())
        else:
            origin = Own(whose.tell, reader)
        yield Reconciliation(
            session(books.schema),
            origin,
            consumer=whose.consumer,
            retention=books.retention,
            page=page,
            progress=progress,
            complain=complain,
        )
