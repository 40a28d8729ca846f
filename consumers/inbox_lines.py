"""Log lines of the inbox: what is away, what was left behind, and at level debug what goes well."""

from dataclasses import asdict
from typing import Any, assert_never

from consumers.backlog import InboxStats
from consumers.events import (
    ConnectionsFree,
    ConnectionsSpent,
    Heartbeat,
    HeartbeatFailed,
    InboxAway,
    InboxBack,
    InboxCleaned,
    LeaseRecovered,
    Moved,
    RevisionRequeued,
    Stored,
    UpkeepFailed,
    WakeUpLost,
)
from consumers.remedies import of_crash, of_inbox
from relay.kernel.failure import code, sentence
from relay.kernel.line_writer import LineWriter, error_fields

Upkeep = InboxCleaned | RevisionRequeued | UpkeepFailed
Intake = Stored | Moved | WakeUpLost
Connections = ConnectionsSpent | ConnectionsFree
InboxEvent = Heartbeat | HeartbeatFailed | Intake | LeaseRecovered | InboxAway | InboxBack | Upkeep | Connections

AWAY = "inbox"
"""The kind of failure whose subject is a consumer and an operation: see `named`."""

_CONSEQUENCES = {
    "receive": "nothing that arrives is stored or acknowledged; the subscription keeps it, and none pays",
    "move": "nothing is taken out of the outbox, which keeps it",
    "claim": "no event is begun; what waits stays in the inbox, and none pays",
    "confirm": "nobody asks what became of what was sent; it waits, and is not sent again",
}


class InboxLines:
    """Writes what happens between a consumer and its inbox."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    def tell(self, event: InboxEvent) -> None:
        """Write the event's line, if it is worth one now."""
        match event:
            case Heartbeat():
                self._lines.write("debug", "heartbeat", consumer=event.consumer, leases=event.leases)
                self._lines.worked("heartbeat", event.consumer)
            case HeartbeatFailed():
                self._heartbeat_failed(event)
            case Stored() | Moved():
                self._arrived(event)
            case WakeUpLost():
                self._unheard(event)
            case LeaseRecovered():
                self._recovered(event)
            case InboxAway():
                self._away(event)
            case InboxBack():
                self._lines.worked(AWAY, _subject(event))
            case InboxCleaned() | RevisionRequeued() | UpkeepFailed():
                self._upkeep(event)
            case ConnectionsSpent() | ConnectionsFree():
                self._connections(event)
            case _:
                assert_never(event)

    def _heartbeat_failed(self, event: HeartbeatFailed) -> None:
        reason = reason_of(event.error)
        self._lines.failed(
            "heartbeat",
            self._lines.repeats.failed("heartbeat", event.consumer, reason),
            consumer=event.consumer,
            leases=event.leases,
            code=reason,
            error=sentence(event.error),
            consequence="leases that are not renewed in time end: others begin these deliveries then, and what these "
            "handlers do or answer does not count",
            remedy=of_inbox(event.error),
        )

    def _arrived(self, event: Stored | Moved) -> None:
        match event:
            case Stored():
                self._lines.write(
                    "debug",
                    "stored",
                    consumer=event.consumer,
                    stored=event.stored,
                    duplicates=event.duplicates,
                    seconds=round(event.seconds, 3),
                )
            case Moved():
                self._lines.write(
                    "debug",
                    "moved",
                    consumer=event.consumer,
                    events=event.events,
                    deliveries=event.deliveries,
                    seconds=round(event.seconds, 3),
                )
            case _:
                assert_never(event)

    def _unheard(self, event: WakeUpLost) -> None:
        self._lines.write(
            "warning",
            "wake_up_lost",
            consumer=event.consumer,
            **error_fields(event.error),
            again_in_seconds=round(event.again_in, 3),
            consequence="new events in the outbox are found by polls, every INBOX_POLL_MS, until notifications arrive",
            remedy="none is needed where a pooler is in between, or when the server comes back",
        )

    def _upkeep(self, event: Upkeep) -> None:
        match event:
            case InboxCleaned():
                self._lines.write(
                    "info",
                    "inbox_cleaned",
                    consumer=event.consumer,
                    deliveries=event.deliveries,
                    seconds=round(event.seconds, 3),
                )
            case RevisionRequeued():
                self._lines.write(
                    "info",
                    "revision_requeued",
                    consumer=event.consumer,
                    handler=event.handler,
                    revision=event.revision,
                    deliveries=event.deliveries,
                    seconds=round(event.seconds, 3),
                )
            case UpkeepFailed():
                self._lines.write(
                    "warning",
                    "upkeep_failed",
                    consumer=event.consumer,
                    operation=event.work,
                    code=reason_of(event.error),
                    error=sentence(event.error),
                    consequence="deliveries are handled all the same; it is tried again, and goes on where it was",
                    remedy=of_inbox(event.error),
                )
            case _:
                assert_never(event)

    def _connections(self, event: Connections) -> None:
        match event:
            case ConnectionsSpent():
                self._lines.write(
                    "warning",
                    "connections_spent",
                    consumer=event.consumer,
                    most=event.most,
                    waiting=event.waiting,
                    consequence="handlers wait in ctx.transaction(), within their own time; readiness says so",
                    remedy="raise INBOX_CONNECTIONS towards INBOX_CONCURRENCY, as far as the database has room; or "
                    "open transactions later and end them sooner",
                )
            case ConnectionsFree():
                self._lines.write("info", "connections_free", consumer=event.consumer, seconds=round(event.seconds, 3))
            case _:
                assert_never(event)

    def _recovered(self, event: LeaseRecovered) -> None:
        self._lines.write(
            "warning",
            "lease_recovered",
            consumer=event.consumer,
            delivery_id=event.delivery_id,
            event_id=event.event_id,
            event_type=event.event_type,
            owner=event.owner,
            attempt=event.attempt,
            alone=event.alone,
            consequence="it has paid an attempt, for nothing else ran there, and is handled again by itself"
            if event.alone
            else "it is handled again by itself, and has paid nothing: others ran beside it",
            remedy=of_crash(),
        )

    def _away(self, event: InboxAway) -> None:
        reason = reason_of(event.error)
        self._lines.failed(
            AWAY,
            self._lines.repeats.failed(AWAY, _subject(event), reason),
            consumer=event.consumer,
            operation=event.operation,
            code=reason,
            error=sentence(event.error),
            again_in_seconds=round(event.again_in, 3),
            consequence=_CONSEQUENCES[event.operation],
            remedy=of_inbox(event.error),
        )


def reason_of(error: BaseException) -> str:
    """The code of what kept the inbox from answering: that it did not is known."""
    return code(error.__cause__ or error)


def inbox_fields(inbox: InboxStats | None) -> dict[str, Any] | None:
    """What `consumer_stats` says of an inbox."""
    if inbox is None:
        return None
    fields = asdict(inbox)
    if inbox.queue is not None:
        fields["queue"]["oldest_due_seconds"] = round(inbox.queue.oldest_due_seconds, 3)
        fields["queue"]["at_least"] = list(inbox.queue.at_least)
    return fields


def named(subject: str) -> dict[str, str]:
    """The fields of a line that says that failures of kind AWAY are over."""
    consumer, _, operation = subject.rpartition(" ")
    return {"consumer": consumer, "operation": operation}


def _subject(event: InboxAway | InboxBack) -> str:
    return f"{event.consumer} {event.operation}"
