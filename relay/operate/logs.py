"""Log lines: for people on a terminal, JSON elsewhere."""

import logging
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from relay.kernel.failure import MOST_CHARACTERS, origin, sentence
from relay.kernel.observe import (
    CloseFailed,
    LoopDied,
    PassFailed,
    PassFinished,
    PassSkipped,
    ShutdownBegan,
    ShutdownEnded,
)
from relay.publisher.events import BatchSettled, RequestFailed, RowFailed


@dataclass(frozen=True, slots=True)
class Started:
    """The relay has reached its outbox for the first time, and works from here on."""

    database: str  # its place and name, without the user
    schema: str
    schema_version: int
    project: str
    broker: str
    topic: str
    batch_size: int


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The relay has reached its outbox again, after it dropped its connection or lost it."""

    database: str


_STAMPS: tuple[Processor, ...] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def logger(level: str, stream: TextIO) -> FilteringBoundLogger:
    """Write lines to the stream, from the level on. Nothing global is touched."""
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[*_STAMPS, _renderer(stream)],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
    )
    return log


def adopt_libraries(stream: TextIO) -> None:
    """Give the warnings of libraries, which use the standard library's logging, the same form; for this process."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_STAMPS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _renderer(stream),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(capture=True)
    # Its warnings are about what fails while a broken connection is put away; the break itself is raised, and told.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def _renderer(stream: TextIO) -> Any:
    return structlog.dev.ConsoleRenderer() if stream.isatty() else structlog.processors.JSONRenderer()


class LogLines:
    """Listens to what happens and writes a line about it."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log

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
                    error=event.error.detail[:MOST_CHARACTERS],
                    batch_size=len(event.rows),
                    first_event_id=event.rows[0].event_id,
                    consequence="the rows stay pending; the topic is left alone for a while, and asked again",
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
                    error=str(event.error)[:MOST_CHARACTERS],
                    consequence="the row is kept as failed (non_retryable) and is not published",
                )
            case Started():
                self._log.info("started", **asdict(event))
            case Reconnected():
                self._log.info("reconnected", database=event.database)
            case _:
                self._kernel(event)

    def _kernel(self, event: object) -> None:
        match event:
            case PassFinished(report=report) if report.processed or report.errors or report.skipped:
                self._log.debug(
                    "pass",
                    runner=event.runner,
                    processed=report.processed,
                    updated=report.updated,
                    skipped=report.skipped,
                    errors=report.errors,
                    next=report.next.value,
                    seconds=round(event.seconds, 3),
                )
            case PassFailed():
                self._log.error(
                    "pass_failed",
                    runner=event.runner,
                    error=sentence(event.error),
                    raised_at=origin(event.error),
                    seconds=round(event.seconds, 3),
                    consequence="what the pass had begun is rolled back, and stays pending",
                )
            case PassSkipped():
                self._log.warning("pass_skipped", runner=event.runner, error="the pass before is still under way")
            case LoopDied():
                self._log.error(
                    "loop_died",
                    runner=event.runner,
                    error=sentence(event.error),
                    raised_at=origin(event.error),
                    consequence="the process stops",
                )
            case CloseFailed():
                self._log.error(
                    "close_failed",
                    runner=event.runner,
                    error=sentence(event.error),
                    consequence="the end of the process drops its connections; its work had ended before",
                )
            case ShutdownBegan():
                self._log.info("shutdown", reason=event.reason, soft_timeout=event.soft_timeout)
            case ShutdownEnded():
                write = self._log.warning if event.abandoned else self._log.info
                write("stopped", abandoned=list(event.abandoned), seconds=round(event.seconds, 3))
