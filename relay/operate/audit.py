"""The audit: does a subscription hold what the outbox says was published, all of it and in order?

    subscription ──read until it is silent──> ledger <──one snapshot── outbox
                                                │
                                                └──compare──> AuditReport

The snapshot is taken last: every message that was read has its row in it, because a row is committed before it is
published. A row owes its message only if it was marked published before the last silence began, so that one which is
published while the audit ends is `late` and not lost.

The subscription is consumed: it needs to be one of its own that existed before the first event, and a second audit of
it sees only what came since. Rows that were deleted since their messages went out make these unknown, but for those
that `relay forget` removed, where this role may read the record of it. What it redacted is compared by its id alone.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Protocol

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import args_row

from relay.brokers.pubsub_reader import Received, Source
from relay.errors import ConfigurationError
from relay.operate.ledger import Arrival, Ledger, Row
from relay.outbox.statements import statement
from relay.postgres.statements import search_path
from relay.routes import Routes

# Findings that must not be. What is out of order counts only where the subscription promises order.
FAULTS = ("lost", "unknown", "undecodable", "misrouted", "mismatched")
_PAGE = 2_000
# As the relay writes it; a consumer that compares texts would not find any other spelling.
_EVENT_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Progress = Callable[[str, int], None]


class Reader(Protocol):
    """One subscription, and what the audit asks of it."""

    async def source(self) -> Source:
        """Ask what is read."""
        ...

    async def next(self, seconds: float) -> Sequence[Received]:
        """Return the next messages, or none after so many seconds without any."""
        ...

    async def acknowledge(self, received: Sequence[Received]) -> None:
        """Have these deliveries forgotten."""
        ...


@dataclass(frozen=True, slots=True)
class AuditedOutbox:
    """Where the rows are, and where the relay publishes each."""

    connection: psycopg.AsyncConnection[Any]
    schema: str
    project: str
    routes: Routes


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was compared and what was found; `examples` has the first event ids of every kind of finding."""

    subscription: str
    topic: str
    ordered: bool  # whether the subscription promises the order of a key

    expected: int  # rows that were marked published before the last silence began
    seen: int  # events
    messages: int  # by the broker's ids

    lost: int  # expected, and never seen
    unknown: int  # seen, and in no row
    undecodable: int  # messages without a valid event_id
    misrouted: int  # seen, and their rows belong to another topic
    mismatched: int  # sequence, ordering key or body are not the row's
    inversions: int  # first arrivals after that of a later event of their key

    duplicates: int  # further messages of an event: the relay published it again
    redelivered: int  # further deliveries of a message: the broker's doing
    pending: int  # rows that are still to be published
    failed: int  # rows that will not be unless an operator retries them
    discarded: int  # rows that an operator gave up
    forgotten: int  # seen, and removed by relay forget
    early: int  # seen although their rows are not marked published: a crash came between
    late: int  # marked published while the audit ended, and not seen yet

    examples: Mapping[str, tuple[str, ...]]

    @property
    def empty(self) -> bool:
        """Whether there was nothing to compare, which proves nothing."""
        return not (self.expected or self.messages)

    @property
    def faults(self) -> dict[str, int]:
        """The findings that must not be, by name, without those that are not."""
        names = (*FAULTS, "inversions") if self.ordered else FAULTS
        return {name: count for name in names if (count := getattr(self, name))}

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing was wrong."""
        return not (self.empty or self.faults)

    def as_json(self) -> dict[str, Any]:
        """For scripts: every field, and the verdict."""
        return {"passed": self.passed, **asdict(self)}


async def audit(
    reader: Reader, outbox: AuditedOutbox, quiet: float, progress: Progress = lambda *_: None
) -> AuditReport:
    """Read the subscription until `quiet` seconds pass without a message, and compare it with the outbox."""
    source = await reader.source()
    topics = _names_of(source.topic, outbox.project)
    with Ledger.temporary() as ledger:
        silent_since = await _read(reader, ledger, quiet, progress)
        await _record_rows(outbox, topics, silent_since, ledger, progress)
        totals, findings = ledger.compare()
    counts = {name: finding.count for name, finding in findings.items()}
    return AuditReport(
        subscription=source.subscription,
        topic=source.topic,
        ordered=source.ordered,
        examples={name: finding.examples for name, finding in findings.items() if finding.count},
        **totals,
        **counts,
    )


def arrival_of(received: Received) -> Arrival:
    """What the ledger keeps of a delivery."""
    event_id = received.attributes.get("event_id", "")
    return Arrival(
        message_id=received.message_id,
        event_id=event_id if _EVENT_ID.fullmatch(event_id) else None,
        sequence=received.attributes.get("sequence"),
        ordering_key=received.ordering_key,
        body_digest=sha256(received.body).digest(),
    )


async def _read(reader: Reader, ledger: Ledger, quiet: float, progress: Progress) -> float:
    """Take everything off the subscription; return since when it has been silent, by the monotonic clock."""
    count = 0
    silent_since = time.monotonic()
    while received := await reader.next(quiet):
        ledger.record_arrivals(map(arrival_of, received))
        # Not before: what is acknowledged and not recorded would count as lost.
        await reader.acknowledge(received)
        count += len(received)
        progress("messages read", count)
        silent_since = time.monotonic()
    return silent_since


async def _record_rows(
    outbox: AuditedOutbox, topics: list[str], silent_since: float, ledger: Ledger, progress: Progress
) -> None:
    """Copy every row, page by page, as one snapshot shows them."""
    count = 0
    connection = outbox.connection
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)
    # Times of the database are compared with each other only: what crosses over is a span.
    values = {
        **outbox.routes.as_parameters,
        "topics": topics,
        "silence": time.monotonic() - silent_since,
    }
    async with connection.transaction():
        await connection.execute(statement("audit_enter"), {"search_path": search_path(outbox.schema)})
        async with connection.cursor("audit", row_factory=args_row(Row)) as rows:
            await rows.execute(statement("audit_rows"), values, binary=True)
            while page := await rows.fetchmany(_PAGE):
                ledger.record_rows(page)
                count += len(page)
                progress("rows compared", count)
        ((may_read,),) = await (await connection.execute(statement("audit_rights"))).fetchall()
        if may_read:
            async with connection.cursor("removed") as removed:
                await removed.execute(statement("audit_removed"))
                while ids := await removed.fetchmany(_PAGE):
                    ledger.record_removed(ids)


def _names_of(topic: str, project: str) -> list[str]:
    """The names by which rows and settings may call a topic."""
    owner, _, short = topic.partition("/topics/")
    if not short:
        raise ConfigurationError(f"the subscription's topic is {topic}: it was deleted, and with it what belongs here")
    return [topic, short] if owner == f"projects/{project}" else [topic]
