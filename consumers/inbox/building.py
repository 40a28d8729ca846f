"""An inbox and what belongs to it, built from what a process knows."""

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import psycopg

from consumers.clock import Clock, SystemClock
from consumers.confirmers import Confirmers
from consumers.dead_letters import DeadLetters
from consumers.errors import ConfigurationError
from consumers.events import StartWarning
from consumers.handlers import Handlers
from consumers.inbox.backlog import InboxBacklog, Tally
from consumers.inbox.claiming import Claiming
from consumers.inbox.cleaning import Cleaning, finished_deliveries
from consumers.inbox.confirming import Confirming
from consumers.inbox.connections import Connections
from consumers.inbox.effects import InboxEffects
from consumers.inbox.failed_rows import FailedRows
from consumers.inbox.inbox import Inbox
from consumers.inbox.locks import InboxLocks
from consumers.inbox.moving import Moving, moving_statement
from consumers.inbox.receiving import Receiving
from consumers.inbox.revising import Revising
from consumers.inbox.saturation import Saturation
from consumers.inbox.schema import INBOX
from consumers.inbox.session import Connect, Session
from consumers.inbox.source import InboxSource, Intake
from consumers.inbox.table import Identity, Table
from consumers.inbox.tickets import Tickets
from consumers.inbox.upkeep import Upkeep
from consumers.sharding import ShardKey
from consumers.sources.neighbours import Neighbours
from consumers.sources.outbox import OutboxFeed
from consumers.sources.source import Facts, Source
from idempotency import StoreUnavailableError
from relay.errors import SchemaError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.duration import written
from relay.kernel.failure import told
from relay.kernel.observe import Observe
from relay.kernel.runner import Runner
from relay.postgres.connect import connect_async
from relay.postgres.schema import Versions
from relay.postgres.wire import Row
from relay.upkeep.table import Destination

_FORGETS: Final = (
    "INBOX_RETENTION is {}, and the subscription keeps messages for {}: one that is delivered again after its delivery "
    "was cleaned away is handled again; set a retention that is longer"
)


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
    """For `ctx.transaction()`, beside four of the inbox's own, and one more where locks are taken."""
    shard: int = 0
    shards: int = 1
    retention: timedelta | None = None
    """How long what has ended is kept; None is for good."""
    retention_to: Destination = "nowhere"
    """Where it goes then."""


@dataclass(frozen=True, slots=True)
class OutboxOf:
    """The outbox of the same database, in place of a subscription."""

    schema: str
    neighbours: Neighbours
    """The consumers of this process that are served by it."""


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of `Outside` that the inbox is."""

    source: InboxSource
    dedup: Inbox
    effects: InboxEffects
    dead_letters: DeadLetters
    locks: InboxLocks
    table: Table
    sends: Confirming
    backlog: InboxBacklog
    upkeep: Upkeep

    def cut(self) -> None:
        """End all connections without a word, and make none any more: what the end of a process does."""
        self.table.cut()
        self.effects.cut()
        self.upkeep.cut()
        self.locks.cut()


def build(  # noqa: PLR0913 -- each by its name
    place: Place,
    *,
    consumer: str,
    handlers: Handlers,
    upstream: Source | OutboxOf,
    dead_letters: DeadLetters | None = None,
    shard_key: ShardKey,
    confirmers: Confirmers,
    observe: Observe,
    clock: Clock | None = None,
    jitter: Jitter = uniform,
    skew: Callable[[], float] = lambda: 0.0,
) -> Built:
    """The inbox of one consumer; nothing connects before it is opened.

    What comes in from a source and is no event goes to `dead_letters`; out of an outbox it stays a row, which failed.
    """
    clock = clock or SystemClock()

    connect = partial(connect_async, place.url, place.app)

    async def examine() -> None:
        await examined(connect, place.schema)

    def judge(facts: Facts) -> None:
        if place.retention and facts.retention and place.retention <= facts.retention:
            observe(StartWarning(consumer, _FORGETS.format(written(place.retention), written(facts.retention))))

    identity = Identity(
        consumer=consumer,
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        lease_seconds=place.lease_seconds,
        shard=place.shard,
        shards=place.shards,
    )
    table = Table(connect, place.schema, identity, skew=skew, monotonic=clock.monotonic)
    tally = Tally(observe)
    inbox = Inbox(
        table,
        clock,
        tally,
        revision_of=handlers.revision_of,
        heartbeat_seconds=place.heartbeat_seconds,
        confirmed_in=confirmers.first_asked,
    )
    claiming = Claiming(table, inbox, tally, clock, poll_seconds=place.poll_seconds, jitter=jitter)
    intake: Intake
    match upstream:
        case OutboxOf(schema, neighbours):
            moving, dead_letters = moving_statement(place.schema), FailedRows(inbox)
            intake = Moving(
                consumer=consumer,
                patterns=handlers.patterns(),
                feed=OutboxFeed(connect, schema, moving, consumer=consumer, observe=tally),
                table=table,
                neighbours=neighbours,
                stored=claiming.arrived,
                observe=tally,
                observe_others=observe,
                clock=clock,
                poll_seconds=place.poll_seconds,
                jitter=jitter,
            )
        case _ if dead_letters is None:
            raise ValueError(f"the source {upstream.name!r} has no dead letters")
        case source:
            intake = Receiving(
                consumer=consumer,
                upstream=source,
                table=table,
                handlers=handlers,
                dead_letters=dead_letters,
                shard_key=shard_key,
                stored=claiming.arrived,
                observe=tally,
                clock=clock,
                jitter=jitter,
            )
    aside = Session(connect, place.schema, skew)
    runners: list[Runner] = [
        Revising(aside, handlers, consumer=consumer, owner=identity.owner, clock=clock, observe=observe)
    ]
    if place.retention is not None:
        runners.append(
            Cleaning(
                aside,
                finished_deliveries(place.schema, consumer, place.retention, place.retention_to),
                connect,
                consumer=consumer,
                owner=identity.owner,
                clock=clock,
                observe=observe,
            )
        )
    upkeep = Upkeep(consumer, runners, aside, observe=observe, clock=clock, jitter=jitter)
    connections = Connections(place.url, place.app, place.connections)
    lease = timedelta(seconds=place.lease_seconds)
    locks = InboxLocks(Session(connect, place.schema, skew), clock, lease, jitter)
    inbox_source = InboxSource(
        intake=intake,
        claiming=claiming,
        inbox=inbox,
        table=table,
        connections=connections,
        upkeep=upkeep,
        saturation=Saturation(consumer, place.connections, lambda: connections.spent, observe, clock),
        locks=locks,
        examine=examine,
        judge=judge,
    )
    effects = InboxEffects(inbox, table, connections, place.schema)
    sends = Confirming(Tickets(table), confirmers, tally, clock, jitter=jitter)
    backlog = InboxBacklog(table, inbox, tally, lambda: connections.spent)
    return Built(inbox_source, inbox, effects, dead_letters, locks, table, sends, backlog, upkeep)


async def examined(connect: Connect, schema: str) -> None:
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


async def asked(url: str, schema: str, app: str, name: str, values: Mapping[str, object]) -> list[Row]:
    """What a statement answers, for a command that asks it and ends. Raises as `examine` does."""
    connect = partial(connect_async, url, app)
    await examined(connect, schema)
    session = Session(connect, schema, lambda: 0.0)
    try:
        return await session.ask(name, values)
    finally:
        await session.close()
