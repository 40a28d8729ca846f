"""An inbox and what belongs to it, built from what a process knows."""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from consumers.clock import Clock, SystemClock
from consumers.dead_letters import DeadLetters
from consumers.errors import ConfigurationError
from consumers.handlers import Handlers
from consumers.inbox.backlog import InboxBacklog, Tally
from consumers.inbox.claiming import Claiming
from consumers.inbox.effects import Connections, InboxEffects
from consumers.inbox.inbox import Inbox
from consumers.inbox.receiving import Receiving
from consumers.inbox.schema import INBOX
from consumers.inbox.source import InboxSource
from consumers.inbox.table import Identity, Table
from consumers.sharding import ShardKey
from consumers.sources.source import Source
from idempotency import StoreUnavailableError
from relay.errors import SchemaError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.failure import told
from relay.kernel.observe import Observe
from relay.postgres.connect import connect_async
from relay.postgres.schema import Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the inbox is, and how this process uses it."""

    url: str
    schema: str
    app: str = ""
    lease_seconds: float
    heartbeat_seconds: float
    poll_seconds: float
    connections: int
    """For `ctx.transaction()`, beside four of the inbox's own."""
    shard: int = 0
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of `Outside` that the inbox is."""

    source: InboxSource
    dedup: Inbox
    effects: InboxEffects
    table: Table
    backlog: InboxBacklog

    def cut(self) -> None:
        """End all connections without a word, and make none any more: what the end of a process does."""
        self.table.cut()
        self.effects.cut()


def build(  # noqa: PLR0913 -- each by its name
    place: Place,
    *,
    consumer: str,
    handlers: Handlers,
    upstream: Source,
    dead_letters: DeadLetters,
    shard_key: ShardKey,
    observe: Observe,
    clock: Clock | None = None,
    jitter: Jitter = uniform,
    skew: Callable[[], float] = lambda: 0.0,
) -> Built:
    """The inbox of one consumer; nothing connects before it is opened."""
    clock = clock or SystemClock()

    async def connect() -> psycopg.AsyncConnection[Any]:
        return await connect_async(place.url, place.app)

    async def examine() -> None:
        await _examine(connect, place.schema)

    identity = Identity(
        consumer=consumer,
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        lease_seconds=place.lease_seconds,
        shard=place.shard,
        shards=place.shards,
    )
    table = Table(connect, place.schema, identity, skew=skew, monotonic=clock.monotonic)
    tally = Tally(observe)
    inbox = Inbox(table, clock, tally, heartbeat_seconds=place.heartbeat_seconds)
    claiming = Claiming(table, inbox, tally, clock, poll_seconds=place.poll_seconds, jitter=jitter)
    receiving = Receiving(
        consumer=consumer,
        upstream=upstream,
        table=table,
        handlers=handlers,
        dead_letters=dead_letters,
        shard_key=shard_key,
        stored=claiming.arrived,
        observe=tally,
        clock=clock,
        jitter=jitter,
    )
    connections = Connections(place.url, place.app, place.connections)
    source = InboxSource(
        upstream=upstream,
        receiving=receiving,
        claiming=claiming,
        inbox=inbox,
        table=table,
        connections=connections,
        examine=examine,
    )
    effects = InboxEffects(inbox, table, connections, place.schema)
    return Built(source, inbox, effects, table, InboxBacklog(table, inbox, tally))


async def _examine(connect: Callable[[], Any], schema: str) -> None:
    """Raise ConfigurationError where it is no inbox that this code works on, StoreUnavailableError where it is away."""
    try:
        connection = await connect()
        try:
            await Versions(INBOX).require(connection, schema)
        finally:
            await connection.close()
    except SchemaError as error:
        raise ConfigurationError(str(error)) from error
    except (psycopg.Error, OSError) as error:
        raise StoreUnavailableError(f"the inbox was not reached: {told(error)}") from error
