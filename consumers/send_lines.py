"""The lines about what was sent: what its provider says of it, and who could not be asked."""

from dataclasses import asdict
from typing import assert_never

from consumers.events import ConfirmFailed, TicketsAsked, TicketSettled, Verdict
from consumers.remedies import of_confirming, of_send
from relay.kernel.failure import code, origin, redacted
from relay.kernel.line_writer import LineWriter, error_fields

Send = TicketSettled | TicketsAsked | ConfirmFailed

CONFIRM = "confirm"
"""The kind of failure whose subject is a consumer and an event type: see `named`."""


def write(lines: LineWriter, event: Send, *, events: bool) -> None:
    """Write the event's line, if it is worth one now; what went well where each event is told."""
    match event:
        case TicketSettled(verdict=Verdict.CONFIRMED):
            if events:
                lines.write("info", "send_confirmed", **_about(event))
        case TicketSettled():
            _failed(lines, event)
        case TicketsAsked():
            lines.write("debug", "tickets_asked", **{**asdict(event), "seconds": round(event.seconds, 3)})
            if not event.faults:
                lines.worked(CONFIRM, _subject(event))
        case ConfirmFailed():
            lines.failed(
                CONFIRM,
                lines.repeats.failed(CONFIRM, _subject(event), code(event.error)),
                consumer=event.consumer,
                event_type=event.event_type,
                tickets=event.tickets,
                **error_fields(event.error),
                raised_at=origin(event.error),
                again_in_seconds=round(event.again_in, 3),
                consequence="nobody knows what became of these sends; they are asked about again until they are "
                "unknown, and not sent again",
                remedy=of_confirming(),
            )
        case _:
            assert_never(event)


def named(subject: str) -> dict[str, str]:
    """The fields of a line that says that failures of kind CONFIRM are over."""
    consumer, _, event_type = subject.partition(" ")  # no consumer's name has a blank
    return {"consumer": consumer, "event_type": event_type}


def _failed(lines: LineWriter, event: TicketSettled) -> None:
    is_sent_again = event.verdict is Verdict.RETRIED
    lines.write(
        "warning" if is_sent_again else "error",
        "send_failed",
        **_about(event),
        code=event.code,
        error=redacted(event.reason),
        again_in_seconds=None if event.again_in is None else round(event.again_in, 3),
        consequence="it is sent again after the delay"
        if is_sent_again
        else "it has failed in the inbox, and is not sent again by itself",
        remedy=of_send(event.verdict),
    )


def _about(event: TicketSettled) -> dict[str, object]:
    """Which send it is, without the recipient: that may be somebody's name."""
    return {
        "consumer": event.consumer,
        "delivery_id": event.delivery_id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "outcome": event.verdict.value,
        "attempt": event.attempt,
    }


def _subject(event: TicketsAsked | ConfirmFailed) -> str:
    return f"{event.consumer} {event.event_type}"
