"""Log lines: for people on a terminal, JSON elsewhere."""

import logging
import sys
from typing import Any

import structlog

from relay.kernel.observe import PassFailed, PassFinished, PassSkipped, ShutdownBegan, ShutdownEnded
from relay.publisher.events import BatchSettled, RequestFailed, RowFailed


def configure(level: str) -> None:
    """Send every log line of this process to stderr, from the level on."""
    renderer: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


class LogLines:
    """Listens to what happens and writes a line about it."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("relay")

    def __call__(self, event: object) -> None:
        """Write the event's line, if it has one."""
        match event:
            case BatchSettled():
                self._log.info(
                    "batch",
                    claimed=event.claimed,
                    published=event.published,
                    failed=event.failed,
                    size_bytes=event.size_bytes,
                    ms=round(event.seconds * 1000, 1),
                )
            case RequestFailed():
                self._log.error(
                    "publish_failed",
                    topic=event.topic,
                    code=event.error.code,
                    error=event.error.detail[:1024],
                    batch_size=len(event.rows),
                    first_event_id=event.rows[0].event_id,
                    consequence="the rows stay pending and are claimed again",
                )
            case RowFailed():
                self._log.error(
                    "row_failed",
                    event_id=event.row.event_id,
                    event_type=event.row.event_type,
                    aggregate_type=event.row.aggregate_type,
                    aggregate_id=event.row.aggregate_id,
                    created_at=event.row.created_at,
                    batch_size=event.batch_size,
                    attempt_count=event.row.attempt_count + 1,
                    topic=event.topic,
                    code=event.error.code,
                    error=str(event.error),
                    consequence="the row is kept as failed (non_retryable) and is not published",
                )
            case PassFailed():
                self._log.error(
                    "pass_failed",
                    runner=event.runner,
                    error=f"{type(event.error).__name__}: {event.error}",
                    consequence="what the pass had begun is rolled back; the runner tries again",
                )
            case PassFinished() if event.report.processed:
                self._log.debug("pass", runner=event.runner, processed=event.report.processed, seconds=event.seconds)
            case PassSkipped():
                self._log.warning("pass_skipped", runner=event.runner, error="the pass before is still under way")
            case ShutdownBegan():
                self._log.info("shutdown", reason=event.reason, soft_timeout=event.soft_timeout)
            case ShutdownEnded():
                write = self._log.warning if event.abandoned else self._log.info
                write("stopped", abandoned=list(event.abandoned), seconds=round(event.seconds, 3))
