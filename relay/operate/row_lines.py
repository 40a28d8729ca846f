"""What is told of a row that failed: as a log line, and as what the outbox keeps of it."""

from collections.abc import Callable
from typing import Any, assert_never

from relay.kernel.line_redaction import Redaction, Words
from relay.kernel.line_writer import error_fields
from relay.outbox.rows import Claimed
from relay.publisher.events import KeyRests, RowFailed, RowRetried


def row_line(event: RowRetried | RowFailed | KeyRests) -> tuple[str, str, dict[str, Any]]:
    """The level, the name and the fields of what is told of a row that failed."""
    match event:
        case RowRetried():
            return (
                "warning",
                "row_retried",
                {
                    **of_row(event.row, event.batch_size, event.attempt_count),
                    **of_failure(event.topic, event.error),
                    "delay_seconds": round(event.delay_seconds, 3),
                    "consequence": "the row has one attempt less, and comes again after the delay",
                },
            )
        case RowFailed():
            waits = "; its ordering key waits until it is retried or discarded" if event.blocks_key else ""
            return (
                "error",
                "row_failed",
                {
                    **of_row(event.row, event.batch_size, event.attempt_count),
                    **of_failure(event.topic, event.error),
                    "reason": event.reason,
                    "blocks_key": event.blocks_key,
                    "consequence": f"the row is kept as failed ({event.reason}) and is not published{waits}",
                },
            )
        case KeyRests():
            return (
                "warning",
                "key_rests",
                {
                    **of_row(event.row, event.batch_size, event.row.attempt_count),
                    **of_failure(event.topic, event.error),
                    "delay_seconds": round(event.delay_seconds, 3),
                    "consequence": "the topic takes others: this row's ordering key is left alone for the delay, and "
                    "nobody pays",
                },
            )
        case _:
            assert_never(event)


def kept_words(redaction: Redaction) -> Callable[[RowRetried | RowFailed | KeyRests], Words]:
    """What the outbox keeps of a row's error: what its line says."""

    def said(event: RowRetried | RowFailed | KeyRests) -> Words:
        level, name, fields = row_line(event)
        return redaction.words(name, level, **fields)

    return said


def of_row(row: Claimed, batch_size: int, attempt_count: int) -> dict[str, Any]:
    """What a line says of a row."""
    return {
        "event_id": row.event_id,
        "event_type": row.event_type,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": row.aggregate_id,
        "created_at": row.created_at,
        "batch_size": batch_size,
        "attempt_count": attempt_count,
    }


def of_failure(topic: str, error: BaseException) -> dict[str, Any]:
    """What it says of what the row, or a request, failed of."""
    return {"topic": topic, **error_fields(error)}
