"""From an outbox of the same database into the inboxes of all its subscribers, without a broker between."""

from collections.abc import Callable, Sequence
from typing import Final

from psycopg import sql

from consumers.clock import Clock
from consumers.events import Moved, StartWarning, Stored
from consumers.inbox.outage import Outage
from consumers.inbox.session import statement
from consumers.inbox.table import Table
from consumers.sources.neighbours import Kept, Neighbours
from consumers.sources.outbox import OutboxFeed, Pass
from consumers.sources.source import Demand, Facts, Origin
from idempotency import StoreUnavailableError
from relay.kernel.backoff import Jitter, uniform
from relay.kernel.observe import Observe
from relay.postgres.statements import texts

# Polls of several processes drift apart by a tenth to either side.
_POLL_JITTER: Final = 0.1
_BESIDE_A_RELAY: Final = (
    "a relay has sent events of this outbox to a broker within the last hour: where it still runs, each event goes to "
    "the broker or to the consumers with source='outbox', whichever is first, and never to both; stop one of them"
)


def moving_statement(inbox_schema: str) -> bytes:
    """What moves claimed rows, where the session's own schema is the outbox's."""
    quoted = sql.Identifier(inbox_schema).as_string(None).replace("%", "%%")
    return statement("move").decode().format(inbox=quoted).encode()


class Moving:
    """Does for all subscribers what it does for its own consumer: who is first moves an event, to each its delivery.

    `observe` is told of its own consumer, and `observe_others` of what is stored for those of other processes.
    """

    name = Origin.OUTBOX.value
    held_messages = 0
    held_bytes = 0

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        *,
        consumer: str,
        patterns: Sequence[str],
        feed: OutboxFeed,
        table: Table,
        neighbours: Neighbours,
        stored: Callable[[Sequence[Kept]], None],
        observe: Observe,
        observe_others: Observe,
        clock: Clock,
        poll_seconds: float,
        jitter: Jitter = uniform,
    ) -> None:
        self._consumer = consumer
        self._patterns = sorted(patterns)
        self._feed = feed
        self._table = table
        self._neighbours = neighbours
        self._stored = stored
        self._observe = observe
        self._observe_others = observe_others
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._jitter = jitter
        self._outage = Outage(consumer, "move", observe, clock, jitter)

    async def open(self) -> Facts:
        """Look at the outbox, and subscribe: what is stored there from here on is the consumer's as well."""
        if await self._feed.examine():
            self._observe(StartWarning(self._consumer, _BESIDE_A_RELAY))
        await self._subscribe()
        self._neighbours.join(self._consumer, self._arrived)
        return Facts(name=self.name)

    async def run(self, demand: Demand) -> None:  # noqa: ARG002 -- what is stored waits in the inbox
        """Move what comes until cancelled."""
        while True:
            try:
                await self._drain()
            except StoreUnavailableError as error:
                await self._outage.wait(error)

    async def close(self, seconds: float) -> None:  # noqa: ARG002 -- nothing is left to be said
        """Let go of the outbox."""
        self._neighbours.leave(self._consumer)
        await self._feed.close()

    async def _drain(self) -> None:
        """Move until nothing is left to move, and rest until something is."""
        events = 0
        while True:
            began = self._clock.monotonic()
            done = await self._feed.move()
            self._outage.over()
            if not done.subscribed:
                await self._subscribe()
                continue
            events += done.events
            self._tell(done, self._clock.monotonic() - began)
            if not done.more:
                break
        pause = self._poll_seconds * (1 - _POLL_JITTER + self._jitter(2 * _POLL_JITTER))
        await self._feed.rest(pause, worked=events)

    def _tell(self, done: Pass, seconds: float) -> None:
        if not done.events:
            return
        self._neighbours.stored(
            done.kept,
            seconds,
            elsewhere=lambda consumer, kept: self._observe_others(Stored(consumer, _events(kept), 0, seconds)),
        )
        self._observe(Moved(self._consumer, done.events, _events(done.kept), seconds))

    def _arrived(self, kept: Sequence[Kept], seconds: float) -> None:
        self._observe(Stored(self._consumer, _events(kept), 0, seconds))
        self._stored(kept)

    async def _subscribe(self) -> None:
        await self._table.ask("subscribe", {"patterns": texts(self._patterns)})


def _events(kept: Sequence[Kept]) -> int:
    return sum(each.events for each in kept)
