"""Who tells which events an inbox should have: the outbox of the same database, or a function of the user's own."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from consumers.decode import decode
from consumers.delivery import Delivery
from consumers.errors import ConfigurationError
from consumers.handlers import Handlers, Unhandled
from consumers.inbox.arriving import arrival_of
from consumers.inbox.rows import Arrival
from consumers.inbox.session import Session
from consumers.missing import Missing, TellMissing
from consumers.received import Undecodable
from consumers.sharding import ShardKey
from relay.envelope import attributes_fault
from relay.errors import OperateError
from relay.kernel.clock import Clock
from relay.kernel.failure import sentence
from relay.patterns import by_kind
from relay.postgres.statements import texts

GIVEN_UP: Final = "given up"
TOO_OLD: Final = "too old"
NOT_DUE: Final = "not due"
UNHANDLED: Final = "not handled"

# What is read of an outbox at once, and one event more.
_PAGE_BYTES: Final = 8_000_000
# How long transactions that were open at the start are waited for.
PATIENCE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_UNSETTLED: Final = (
    "a transaction from before the command is still open, and may store events that were not seen: find it in "
    "pg_stat_activity by its xact_start, let it end, and run the command again"
)


@dataclass(slots=True, kw_only=True)
class Page:
    """What was told at once."""

    arrivals: list[Arrival] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """A sentence for each event that cannot be stored."""
    passed: dict[str, int] = field(default_factory=dict)
    """How many were left out, by why."""
    then: Any = None
    """The next position; None behind the last event."""

    @property
    def seen(self) -> int:
        """How many events of this consumer's there were."""
        return len(self.arrivals) + len(self.refused)

    def pass_over(self, why: str, count: int = 1) -> None:
        """Leave out."""
        if count:
            self.passed[why] = self.passed.get(why, 0) + count


class Origin(Protocol):
    """Tells events a page at a time, in an order of its own."""

    name: str

    async def open(self) -> list[str]:
        """Look at what will be read; answer with a sentence for each reason why not all of it may be seen."""
        ...

    async def page(self, position: Any, size: int, floor: float | None) -> Page:
        """What is there from a position on, None at first. What is from before `floor` may have been cleaned away."""
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes of a message what is stored of it for the consumer."""

    handlers: Handlers
    shard_key: ShardKey

    def take(self, page: Page, delivery: Delivery, named: str, floor: float | None = None) -> None:
        """Put the event into the page, or leave it out."""
        event = decode(delivery)
        if isinstance(event, Undecodable):
            page.refused.append(f"{named}: {event.reason}")
        elif isinstance(self.handlers.resolve(event.event_type, event.version), Unhandled):
            page.pass_over(UNHANDLED)
        elif floor is not None and event.occurred_at.timestamp() < floor:
            page.pass_over(TOO_OLD)
        else:
            try:
                page.arrivals.append(arrival_of(delivery, event, self.shard_key))
            except Exception as error:  # noqa: BLE001 -- shard_by is the user's own
                page.refused.append(f"{named}: the consumer's shard_by failed on it ({type(error).__name__})")


class Outbox:
    """The events of an outbox in the same database, in the order of their ids."""

    name = "outbox"

    def __init__(self, session: Session, schema: str, reader: Reader, clock: Clock) -> None:
        self._session = session
        self._schema = schema
        self._reader = reader
        self._clock = clock
        self._newest = 0

    async def open(self) -> list[str]:
        """Mark the newest event, and wait for transactions that may yet store one below it."""
        ((there,),) = await self._session.ask("outbox_there", {})
        if not there:
            raise ConfigurationError(
                f"schema {self._schema!r} of this database has no outbox_events to rebuild deliveries from; name the "
                "schema of the outbox in RELAY_SCHEMA, or register a function of your own with @consumer.reconcile"
            )
        ((newest, xid),) = await self._session.ask("outbox_mark", {})
        self._newest = int(newest)
        for _ in range(round(PATIENCE_SECONDS / _POLL_SECONDS)):
            ((settled,),) = await self._session.ask("outbox_settled", {"xid": xid})
            if settled:
                return []
            await self._clock.wait(asyncio.Event(), _POLL_SECONDS)
        return [_UNSETTLED]

    async def page(self, position: Any, size: int, floor: float | None) -> Page:
        """The events behind an id."""
        types, beginnings = by_kind(self._reader.handlers.patterns())
        rows = await self._session.ask(
            "outbox_page",
            {
                "types": texts(types),
                "beginnings": texts(beginnings),
                "after": 0 if position is None else position,
                "newest": self._newest,
                "rows": size,
                "bytes": _PAGE_BYTES,
                "floor": floor,
            },
        )
        read, last, given_up, too_old, not_due = rows[0][:5]
        page = Page(then=int(last) if read and int(last) < self._newest else None)
        for why, count in ((GIVEN_UP, given_up), (TOO_OLD, too_old), (NOT_DUE, not_due)):
            page.pass_over(why, int(count))
        for row in rows:
            if row[5] is not None:
                self._take(page, row[5:])
        return page

    def _take(self, page: Page, row: Sequence[Any]) -> None:
        id_, event_id, event_type, aggregate_type, aggregate_id, key, message_id, created_at, body, more = row
        named = f"event {event_id} (row {id_})"
        try:
            own = json.loads(more)
        except (ValueError, RecursionError) as error:  # a row written by hand may have any depth
            page.refused.append(f"{named}: its attributes cannot be read ({type(error).__name__})")
            return
        if fault := attributes_fault(own):
            page.refused.append(f"{named}: {fault}")
            return
        relays = {
            "event_id": event_id,
            "event_type": event_type,
            "aggregate_type": aggregate_type,
            "aggregate_id": aggregate_id,
            "created_at": created_at,
            "sequence": str(id_),
        }
        delivery = Delivery(body=body, attributes={**own, **relays}, message_id=message_id, ordering_key=key)
        self._reader.take(page, delivery, named)


class Own:
    """What a function of the consumer's tells."""

    name = "own"

    def __init__(self, tell: TellMissing, reader: Reader) -> None:
        self._tell = tell
        self._reader = reader

    async def open(self) -> list[str]:
        """It has been looked at."""
        return []

    async def page(self, position: Any, size: int, floor: float | None) -> Page:
        """What it tells at a position."""
        try:
            events, then = await self._tell(position, size)
            events = list(events)
        except Exception as error:  # it is the user's, and may raise anything
            raise OperateError(
                f"the consumer's own function for reconcile failed: {sentence(error)}; what was stored before is "
                "stored, and the next call goes on from there"
            ) from error
        if then is not None and then == position:
            raise OperateError(
                "the consumer's own function for reconcile answered with the position that it was called with; behind "
                "the last event it has to answer with None"
            )
        page = Page(then=then)
        for event in events:
            if not isinstance(event, Missing):
                raise OperateError(
                    f"the consumer's own function for reconcile told a {type(event).__name__}; it has to tell "
                    "consumers.Missing"
                )
            named = f"event {event.event_id!s:.64}"
            try:
                delivery = event.delivery()
            except Exception as error:  # noqa: BLE001 -- what is in data is the user's
                page.refused.append(f"{named}: it cannot be written as JSON ({type(error).__name__})")
                continue
            self._reader.take(page, delivery, named, floor)
        return page
