"""Log lines of consumers: every failure with its event, what it means and what to do."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, assert_never

from structlog.typing import FilteringBoundLogger

from consumers import inbox_lines, send_lines
from consumers.dedup.protocol import Mode
from consumers.events import (
    CompletionUnwritten,
    ConsumerStarted,
    ConsumerStats,
    ConsumerStopped,
    DeadLetterFailed,
    DeliveriesLost,
    DeliverySettled,
    Fate,
    HandlerOverdue,
    JobsStarted,
    OutcomeIgnored,
    PipelineFault,
    ResultUnkept,
    SettleFailed,
    SourceAway,
    SourceBack,
    StartWarning,
    StoreAway,
    StoreBack,
    Throttled,
)
from consumers.inbox_lines import InboxEvent, InboxLines, inbox_fields
from consumers.received import Subject
from consumers.remedies import of_dead_letters, of_delivery, of_inbox, of_source, of_store
from consumers.send_lines import Send
from consumers.send_lines import write as write_send
from consumers.work_lines import Work
from consumers.work_lines import write as write_work
from relay.kernel.failure import code, origin, redacted, sentence
from relay.kernel.line_redaction import Redact
from relay.kernel.line_writer import LineWriter, error_fields
from relay.kernel.observe import LoopDied, ShutdownBegan, ShutdownEnded
from relay.kernel.repeats import EVERY_SECONDS, Summary
from relay.upkeep import pass_lines
from relay.upkeep.events import JobEvent, is_of_job
from relay.upkeep.lines import JobLines

Delivery = HandlerOverdue | CompletionUnwritten | ResultUnkept | OutcomeIgnored | PipelineFault
Outage = StoreAway | StoreBack | SourceAway | SourceBack | SettleFailed | DeadLetterFailed
Life = ConsumerStarted | ConsumerStopped | ConsumerStats | StartWarning | DeliveriesLost | Throttled
Process = JobsStarted | LoopDied | ShutdownBegan | ShutdownEnded
Told = DeliverySettled | Delivery | Work | Send | Outage | InboxEvent | Life | Process

_CONSEQUENCES = {
    Fate.RETRIED: "the event has one attempt less, and is handled again after the delay",
    Fate.DEAD: "the event is in the dead-letter topic, and is not handled again unless it is replayed",
    Fate.INVALID: "the event is in the dead-letter topic, and is not handled again unless it is replayed",
    Fate.UNDECODABLE: "the message is in the dead-letter topic; it holds no event",
    Fate.LEASE_LOST: "somebody else may act on the event as well; what this handler did or answered does not count",
}
_FAILED_IN_INBOX = "the delivery has failed: it stays in the inbox, and is not handled again unless it is retried"
_UNREAD_IN_INBOX = "the row of the outbox holds no event: its delivery has failed, and stays in the inbox"
_BURIED = (Fate.DEAD, Fate.INVALID, Fate.UNDECODABLE)


class LogLines:
    """Listens to what happens and writes a line about it.

    With `events`, each delivery that was settled has a line of its own; those that failed always have. `redact` gets
    every line before it is written. What is away is told at first, then once a minute, and when it is over; at level
    debug, each time.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        *,
        events: bool = False,
        redact: Redact | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = events
        self._monotonic = monotonic
        self._lines = LineWriter(log, redact, monotonic, _named)
        self._repeats = self._lines.repeats
        self._inbox = InboxLines(self._lines)
        self._jobs = JobLines(self._lines)
        self._passes = pass_lines.PassLines(self._lines)
        self._subscriptions: dict[str, str] = {}
        self._with_inbox: set[str] = set()
        self._without_broker: set[str] = set()
        self._unsettled_at: dict[str, float] = {}

    def __call__(self, event: object) -> None:
        """Write the event's line, if it is one of ours and has one."""
        self._lines.recovered(self._repeats.due(end=isinstance(event, ConsumerStopped | ShutdownEnded)))
        if isinstance(event, JobEvent):
            self._jobs.tell(event)
        elif isinstance(event, pass_lines.PassEvent) and is_of_job(event.runner):
            self._passes.tell(event)
        elif isinstance(event, Told):
            self._tell(event)

    def _tell(self, event: Told) -> None:
        # What has lines of its own elsewhere.
        if isinstance(event, InboxEvent):
            self._inbox.tell(event)
            return
        if isinstance(event, Work):
            write_work(self._lines, event, _event(event.consumer, event.subject), events=self._events)
            return
        if isinstance(event, Send):
            write_send(self._lines, event, events=self._events)
            return
        match event:
            case DeliverySettled():
                self._settled(event)
            case HandlerOverdue() | CompletionUnwritten() | ResultUnkept() | OutcomeIgnored() | PipelineFault():
                self._delivery(event)
            case StoreAway() | StoreBack() | SourceAway() | SourceBack() | SettleFailed() | DeadLetterFailed():
                self._outage(event)
            case ConsumerStarted() | ConsumerStopped() | ConsumerStats() | StartWarning():
                self._life(event)
            case DeliveriesLost() | Throttled():
                self._life(event)
            case JobsStarted() | LoopDied() | ShutdownBegan() | ShutdownEnded():
                self._process(event)
            case _:
                assert_never(event)

    def _settled(self, event: DeliverySettled) -> None:
        match event.fate:
            case Fate.RETRIED | Fate.LEASE_LOST:
                self._failed_delivery("warning", event)
            case Fate.DEAD | Fate.INVALID | Fate.UNDECODABLE:
                self._failed_delivery("error", event)
            case Fate.BUSY | Fate.HELD:
                self._settled_delivery("debug", "delivery_waits", event)
            case (
                Fate.DONE
                | Fate.SENT
                | Fate.SKIPPED
                | Fate.DUPLICATE
                | Fate.UNHANDLED
                | Fate.NOT_MEANT
                | Fate.DEFERRED
                | Fate.RELEASED
            ):
                if self._events:
                    self._settled_delivery("info", "delivery_settled", event)
            case _:
                assert_never(event.fate)
        if event.fate in _BURIED and (event.fate is Fate.UNDECODABLE or event.consumer not in self._with_inbox):
            self._lines.worked("dead_letter", event.consumer)

    def _failed_delivery(self, level: str, event: DeliverySettled) -> None:
        error, inbox = event.error, event.consumer in self._with_inbox
        broker = event.consumer not in self._without_broker
        self._lines.write(
            level,
            "delivery_failed",
            **self._fields(event),
            code=event.code or (code(error) if error else event.fate.name),
            error=redacted(event.reason) if event.reason else sentence(error) if error else "",
            raised_at=origin(error) if error else [],
            consequence=_consequence(event.fate, inbox=inbox, broker=broker),
            remedy=of_delivery(event.fate, event.code, event.consumer, inbox=inbox, broker=broker),
        )

    def _settled_delivery(self, level: str, name: str, event: DeliverySettled) -> None:
        self._lines.write(level, name, **self._fields(event), reason=redacted(event.reason))

    def _fields(self, event: DeliverySettled) -> dict[str, Any]:
        return {
            **_event(event.consumer, event.subject),
            "subscription": self._subscriptions.get(event.consumer),
            "message_id": event.subject.message_id,
            "outcome": event.fate.value,
            "attempt": event.attempt,
            "seconds": round(event.seconds, 3),
            "lag_seconds": None if event.lag is None else round(event.lag, 3),
            "again_in_seconds": None if event.again_in is None else round(event.again_in, 3),
        }

    def _delivery(self, event: Delivery) -> None:
        about = _event(event.consumer, event.subject)
        match event:
            case HandlerOverdue():
                self._lines.write(
                    "warning",
                    "handler_overdue",
                    **about,
                    seconds=round(event.seconds, 3),
                    consequence="a thread cannot be cancelled: its lease is kept, and its place is taken until it "
                    "returns",
                    remedy="give what the handler waits for a timeout of its own, or make it async def",
                )
            case CompletionUnwritten():
                self._lines.write(
                    "error",
                    "completion_unwritten",
                    **about,
                    **error_fields(event.error),
                    consequence="the effect is there and the delivery acknowledged, but another delivery of the event "
                    "would repeat the effect",
                    remedy="none is needed unless the event is published again; see why the store was away",
                )
            case ResultUnkept():
                self._lines.write(
                    "warning",
                    "result_unkept",
                    **about,
                    **error_fields(event.error),
                    kind=event.kind,
                    consequence="the effect is there and the event completed, without what the handler returned",
                    remedy="return nothing, an outcome, or what pydantic can write as JSON",
                )
            case OutcomeIgnored():
                self._lines.write(
                    "warning",
                    "outcome_ignored",
                    **about,
                    answer=event.answer,
                    consequence="ctx.complete had completed the event, which stays completed"
                    if event.completed
                    else "the lease was lost before the handler answered: somebody else may have acted as well",
                    remedy="let nothing of the effect come after ctx.complete"
                    if event.completed
                    else of_delivery(Fate.LEASE_LOST, "", event.consumer, inbox=event.consumer in self._with_inbox),
                )
            case PipelineFault():
                self._lines.write(
                    "error",
                    "pipeline_fault",
                    **about,
                    **error_fields(event.error),
                    raised_at=origin(event.error),
                    again_in_seconds=round(event.again_in, 3),
                    consequence="the delivery is given back and comes again; nothing is lost",
                    remedy="this is a fault of the SDK, not of the handler: report it with this line",
                )
            case _:
                assert_never(event)

    def _outage(self, event: Outage) -> None:
        match event:
            case StoreAway():
                self._lines.failed(
                    "store",
                    self._repeats.failed("store", event.consumer, code(event.error)),
                    consumer=event.consumer,
                    **error_fields(event.error),
                    again_in_seconds=round(event.again_in, 3),
                    consequence="no event is begun until the store answers; deliveries are held, and none pays",
                    remedy=of_inbox(event.error) if event.consumer in self._with_inbox else of_store(event.error),
                )
            case StoreBack():
                self._lines.worked("store", event.consumer)
            case SourceAway():
                self._lines.failed(
                    "source",
                    self._repeats.failed("source", event.consumer, code(event.error)),
                    consumer=event.consumer,
                    subscription=event.subscription,
                    **error_fields(event.error),
                    again_in_seconds=round(event.again_in, 3),
                    consequence="no deliveries come in; the subscription keeps them, and is asked again and again",
                    remedy=of_source(code(event.error), event.subscription),
                )
            case SourceBack():
                self._lines.worked("source", event.consumer)
            case SettleFailed():
                self._settle_failed(event)
            case DeadLetterFailed():
                self._dead_letter_failed(event)
            case _:
                assert_never(event)

    def _settle_failed(self, event: SettleFailed) -> None:
        subject = f"{event.consumer} {event.operation}"
        now = self._monotonic()
        # What succeeds is not told: a minute without a failure is taken for that.
        if now - self._unsettled_at.get(subject, now) >= EVERY_SECONDS:
            self._repeats.settle("settle", subject)
        self._unsettled_at[subject] = now
        self._lines.failed(
            "settle",
            self._repeats.failed("settle", subject, code(event.error)),
            consumer=event.consumer,
            subscription=event.subscription,
            operation=event.operation,
            messages=event.messages,
            **error_fields(event.error),
            consequence="these messages are delivered again; what was acted on is recognised, unless dedup is none",
            remedy=of_source(code(event.error), event.subscription),
        )

    def _dead_letter_failed(self, event: DeadLetterFailed) -> None:
        advice = self._repeats.failed("dead_letter", event.consumer, code(event.error))
        about = {} if isinstance(advice, Summary) else _event(event.consumer, event.subject)
        self._lines.failed(
            "dead_letter",
            advice,
            **(about or {"consumer": event.consumer}),
            topic=event.topic,
            **error_fields(event.error),
            again_in_seconds=round(event.again_in, 3),
            consequence="the delivery is held and not acknowledged, and is sent there again; nothing is lost",
            remedy=of_dead_letters(code(event.error), event.topic),
        )

    def _life(self, event: Life) -> None:
        match event:
            case ConsumerStarted():
                self._subscriptions[event.consumer] = event.subscription
                if event.dedup == Mode.INBOX.value:
                    self._with_inbox.add(event.consumer)
                if not event.dead_letter_topic:
                    self._without_broker.add(event.consumer)
                fields = {**asdict(event), "event_types": list(event.event_types)}
                self._lines.write("info", "consumer_started", **fields)
            case ConsumerStopped():
                self._lines.write(
                    "warning" if event.abandoned else "info",
                    "consumer_stopped",
                    consumer=event.consumer,
                    seconds=round(event.seconds, 3),
                    released=event.released,
                    abandoned=list(event.abandoned),
                )
            case ConsumerStats():
                fields = asdict(event)
                for name in ("seconds", "oldest_running_seconds"):
                    fields[name] = round(fields[name], 3)
                self._lines.write("info", "consumer_stats", **{**fields, "inbox": inbox_fields(event.inbox)})
            case StartWarning():
                self._lines.write("warning", "start_warning", consumer=event.consumer, warning=event.sentence)
            case DeliveriesLost():
                self._lines.write(
                    "warning",
                    "deliveries_lost",
                    consumer=event.consumer,
                    subscription=event.subscription,
                    messages=event.messages,
                    error=redacted(event.reason),
                    consequence="they come again, here or elsewhere, while their handlers may still run",
                    remedy="where it is frequent, see that no handler blocks the event loop",
                )
            case Throttled():
                self._lines.write(
                    "info",
                    "throttled",
                    consumer=event.consumer,
                    event_type=event.event_type,
                    seconds=round(event.seconds, 3),
                )
            case _:
                assert_never(event)

    def _process(self, event: Process) -> None:
        match event:
            case LoopDied():
                self._lines.write(
                    "error",
                    "consumer_died",
                    consumer=event.runner,
                    **error_fields(event.error),
                    raised_at=origin(event.error),
                    consequence="it receives no more, and a process of consumers ends; its deliveries come again",
                )
            case JobsStarted():
                self._lines.write("info", "jobs_started", runners=list(event.runners), schema=event.schema)
            case ShutdownBegan():
                self._lines.write("info", "shutdown", reason=event.reason, soft_timeout=event.soft_timeout)
            case ShutdownEnded():
                level = "warning" if event.abandoned else "info"
                self._lines.write(level, "stopped", abandoned=list(event.abandoned), seconds=round(event.seconds, 3))
            case _:
                assert_never(event)


def _consequence(fate: Fate, *, inbox: bool, broker: bool) -> str:
    match fate:
        case Fate.DEAD | Fate.INVALID if inbox:
            return _FAILED_IN_INBOX
        case Fate.UNDECODABLE if not broker:
            return _UNREAD_IN_INBOX
        case _:
            return _CONSEQUENCES[fate]


def _named(kind: str, subject: str) -> dict[str, Any]:
    match kind:
        case send_lines.CONFIRM:
            return send_lines.named(subject)
        case inbox_lines.AWAY:
            return inbox_lines.named(subject)
        case pass_lines.PASS:
            return pass_lines.named(subject)
        case _:
            return {"consumer": subject}


def _event(consumer: str, subject: Subject) -> dict[str, Any]:
    return {
        "consumer": consumer,
        "event_id": str(subject.event_id),
        "event_type": subject.event_type,
        "aggregate_type": subject.aggregate_type,
        "aggregate_id": subject.aggregate_id,
        "created_at": None if subject.created_at is None else subject.created_at.isoformat(),
    }
