"""What happens to a consumer, as values: log lines, metrics and tests listen to the same ones."""

from dataclasses import dataclass
from enum import Enum

from consumers.backlog import InboxStats
from consumers.received import Subject


class Fate(Enum):
    """What became of one delivery."""

    DONE = "done"
    SKIPPED = "skipped"
    DUPLICATE = "duplicate"
    """Acted on before; acknowledged."""
    UNHANDLED = "unhandled"
    """No handler is meant; acknowledged."""
    NOT_MEANT = "not_meant"
    """Replayed for another consumer; acknowledged."""
    RETRIED = "retried"
    """Failed, has cost an attempt, and comes again."""
    DEFERRED = "deferred"
    BUSY = "busy"
    """In progress elsewhere; looked at again later."""
    SENT = "sent"
    """A provider has it; what became of it is asked later, and told as TicketSettled."""
    DEAD = "dead"
    INVALID = "invalid"
    UNDECODABLE = "undecodable"
    """No event; in the dead-letter topic, as the two before."""
    LEASE_LOST = "lease_lost"
    """Somebody else may act on it; what this handler did or said does not count."""
    RELEASED = "released"
    """Given back uncounted, at the shutdown."""
    HELD = "held"
    """The store or the dead-letter topic is away; looked at again later, uncounted."""

    @property
    def final(self) -> bool:
        """Whether the message was acknowledged."""
        return self in _FINAL


_FINAL = frozenset(
    {Fate.DONE, Fate.SKIPPED, Fate.DUPLICATE, Fate.UNHANDLED, Fate.NOT_MEANT, Fate.DEAD, Fate.INVALID, Fate.UNDECODABLE}
)


@dataclass(frozen=True, slots=True)
class DeliverySettled:
    """One time that a delivery was worked on came to its end."""

    consumer: str
    subject: Subject
    fate: Fate
    attempt: int
    """From 1; 0 where no handler was meant to run."""
    seconds: float
    """Of the handler; 0 where it did not run."""
    lag: float | None
    """Seconds from the event's being stored, or else published, to its first being handed over."""
    code: str = ""
    reason: str = ""
    again_in: float | None = None
    """Seconds to the next look, where there is one."""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class ConsumerStarted:
    """A consumer has reached what it needs, and receives from here on."""

    consumer: str
    subscription: str
    dedup: str
    dead_letter_topic: str
    event_types: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class JobsStarted:
    """The jobs of RELAY_APP wait for their slots, or run; whether their schema is there is found out by each."""

    runners: tuple[str, ...]
    schema: str


@dataclass(frozen=True, slots=True)
class ConsumerStopped:
    """The end; how many deliveries were given back, and which handlers had to be abandoned."""

    consumer: str
    seconds: float
    released: int
    abandoned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartWarning:
    """Something an operator should know, which does not keep the consumer from working."""

    consumer: str
    sentence: str


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The deduplication store does not answer: nothing is begun until it does."""

    consumer: str
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class StoreBack:
    """It answers again."""

    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SourceAway:
    """The subscription could not be read; it is asked again."""

    consumer: str
    subscription: str
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class SourceBack:
    """The subscription is read again after a failure."""

    consumer: str
    subscription: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """Acknowledgements or extensions could not be sent in time: their messages come again."""

    consumer: str
    subscription: str
    operation: str  # acknowledge | extend | give_back
    messages: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class DeliveriesLost:
    """The source holds deliveries for us no longer, though we work on them: they come again, here or elsewhere."""

    consumer: str
    subscription: str
    messages: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterFailed:
    """The dead-letter topic did not take a message; it is held and tried again."""

    consumer: str
    topic: str
    subject: Subject
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Leases were renewed, so many."""

    consumer: str
    leases: int


@dataclass(frozen=True, slots=True)
class HeartbeatFailed:
    """Leases could not be renewed; they are tried again until they end."""

    consumer: str
    leases: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch of arrivals is in the inbox."""

    consumer: str
    stored: int
    duplicates: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ClaimMade:
    """A statement asked the inbox for deliveries."""

    consumer: str
    way: str  # ready | key | alone
    wanted: int
    found: int
    conflicts: int = 0
    """Those that were found free, and that another process had before us."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A batch of events went from the outbox into the inbox, for all subscribers."""

    consumer: str
    """Whose process did it."""
    events: int
    deliveries: int
    """Of all consumers; an event that none subscribes to has none."""
    seconds: float


@dataclass(frozen=True, slots=True)
class WakeUpLost:
    """The consumer does not hear of new events in the outbox, and polls until it does again."""

    consumer: str
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class LeaseRecovered:
    """A delivery whose owner was silent for longer than its lease: it is handled again, by itself."""

    consumer: str
    delivery_id: int
    event_id: str
    event_type: str
    attempt: int
    owner: str
    alone: bool
    """Whether its owner ran nothing else: then it pays an attempt for the crash."""


class Verdict(Enum):
    """What asking about a send came to."""

    CONFIRMED = "confirmed"
    RETRIED = "retried"
    """It failed, and is sent again."""
    DEAD = "dead"
    INVALID = "invalid"
    """Its recipient is none."""
    UNKNOWN = "unknown"
    """Nobody said in time; it is never sent again by itself."""
    OPEN = "open"
    """Not yet: asked again later."""
    LOST = "lost"
    """Somebody else asks about it by now."""

    @property
    def final(self) -> bool:
        """Whether the delivery is over."""
        return self in (Verdict.CONFIRMED, Verdict.DEAD, Verdict.INVALID, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TicketSettled:
    """A provider said what became of a send, or never did."""

    consumer: str
    delivery_id: int
    event_id: str
    event_type: str
    recipient: str
    attempt: int
    verdict: Verdict
    code: str = ""
    reason: str = ""
    again_in: float | None = None
    """Seconds to the next send, where there is one."""


@dataclass(frozen=True, slots=True)
class TicketsAsked:
    """A confirming function was asked about some sends, and has answered."""

    consumer: str
    event_type: str
    tickets: int
    verdicts: dict[str, int]
    """How many of each verdict."""
    seconds: float
    faults: int = 0
    """Those about which it failed, or answered wrongly: see ConfirmFailed."""


@dataclass(frozen=True, slots=True)
class ConfirmFailed:
    """A confirming function, or what deactivates recipients, failed or answered wrongly: asked again later."""

    consumer: str
    event_type: str
    tickets: int
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class InboxAway:
    """The inbox was not reached for receiving, moving, claiming or confirming; it is asked again."""

    consumer: str
    operation: str  # receive | move | claim | confirm
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class InboxBack:
    """It answers again."""

    consumer: str
    operation: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ConnectionsSpent:
    """Handlers have waited for a connection of `ctx.transaction()` for a second: all that there may be are in use."""

    consumer: str
    most: int  # INBOX_CONNECTIONS
    waiting: int


@dataclass(frozen=True, slots=True)
class ConnectionsFree:
    """None waits any more."""

    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class InboxCleaned:
    """Deliveries that ended longer ago than the retention were removed, with their history."""

    consumer: str
    deliveries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RevisionRequeued:
    """Deliveries that an older revision of a handler has ended are handled again."""

    consumer: str
    handler: str
    """The event types that it is for, as it was registered."""
    revision: int
    deliveries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class UpkeepFailed:
    """The upkeep of an inbox failed, and is tried again; deliveries are handled all the same."""

    consumer: str
    work: str  # inbox_cleaning | inbox_revisions
    error: BaseException


@dataclass(frozen=True, slots=True)
class HandlerOverdue:
    """A handler in a thread runs for longer than its timeout. It cannot be cancelled; its lease is kept."""

    consumer: str
    subject: Subject
    seconds: float


@dataclass(frozen=True, slots=True)
class CompletionUnwritten:
    """The effect is there, and the store was not told: another delivery of the event would repeat it."""

    consumer: str
    subject: Subject
    error: BaseException


@dataclass(frozen=True, slots=True)
class ResultUnkept:
    """The effect is there and completed, without what the handler returned: that is no JSON."""

    consumer: str
    subject: Subject
    kind: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class OutcomeIgnored:
    """A handler answered when its answer did not count any more."""

    consumer: str
    subject: Subject
    answer: str
    completed: bool = False
    """Because its own transaction had completed the event; otherwise because its lease was lost."""


@dataclass(frozen=True, slots=True)
class PipelineFault:
    """The SDK itself failed on a delivery, which is given back: nothing is lost, and somebody should be told."""

    consumer: str
    subject: Subject
    error: BaseException
    again_in: float


@dataclass(frozen=True, slots=True)
class Throttled:
    """`ctx.throttle_all`: this event type begins nothing new in this process for a while."""

    consumer: str
    event_type: str
    seconds: float


# The code of a stage that was cut short: by a timeout, by the end of the process, or by whatever cancelled it.
CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class StageEnded:
    """A stage of a handler is over; with a code it failed."""

    consumer: str
    subject: Subject
    stage: str
    seconds: float
    code: str = ""


@dataclass(frozen=True, slots=True)
class ProgressMade:
    """How far a handler says that it is, in percent; not each time that it says so."""

    consumer: str
    subject: Subject
    percent: float


@dataclass(frozen=True, slots=True)
class ArtifactUploaded:
    """An artifact was made, and is whole where it belongs."""

    consumer: str
    subject: Subject
    artifact: str
    bytes: int
    seconds: float
    """Of the upload."""


@dataclass(frozen=True, slots=True)
class ArtifactReused:
    """An artifact was whole already, and was not uploaded again."""

    consumer: str
    subject: Subject
    artifact: str
    bytes: int


@dataclass(frozen=True, slots=True)
class NoteLost:
    """Something could not be noted in a delivery's history; the work went on without."""

    consumer: str
    subject: Subject
    note: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ScratchLeft:
    """The scratch directory of an attempt could not be removed."""

    consumer: str
    subject: Subject
    error: BaseException


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """A periodic look at one consumer in this process; the counts are since the last one."""

    consumer: str
    subscription: str
    outcomes: dict[str, int]
    running: int
    waiting: int
    resting: int
    held_messages: int
    held_bytes: int
    oldest_running_seconds: float
    receiving: bool
    store_available: bool
    seconds: float
    inbox: InboxStats | None = None
    """Of a consumer that has one."""
