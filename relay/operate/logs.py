"""Log lines: for people on a terminal, JSON elsewhere."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, assert_never

from structlog.typing import FilteringBoundLogger

from relay.kernel.failure import code, origin
from relay.kernel.line_redaction import Redact
from relay.kernel.line_writer import LineWriter, error_fields
from relay.kernel.log_output import adopt_libraries, logger
from relay.kernel.observe import (
    CloseFailed,
    LoopDied,
    PassFailed,
    PassFinished,
    PassSkipped,
    ShutdownBegan,
    ShutdownEnded,
)
from relay.kernel.repeats import Hold, Summary
from relay.operate.events import Reconnected, SchemaDiffers, Started
from relay.operate.http.server import HttpListening
from relay.operate.remedies import created_or_corrected, heard_again, one_version
from relay.operate.row_lines import of_failure, of_row, row_line
from relay.operate.stats import RelayStats
from relay.outbox.events import ListenConnected, ListenLost, Looked
from relay.publisher.events import (
    BatchSettled,
    KeyRests,
    RequestFailed,
    RowFailed,
    RowRetried,
    SlotsLacking,
    TopicClosed,
    TopicOpened,
    TopicProbed,
)
from relay.upkeep.events import JobEvent
from relay.upkeep.lines import JobLines

__all__ = ["LogLines", "adopt_libraries", "logger"]

_WAIT = "the rows of this topic wait, and none of them pays; nothing is lost, and one is tried again and again"


class LogLines:
    """Listens to what happens and writes a line about it.

    With `events`, each published event has a line of its own. `redact` gets every line before it is written. What
    fails again and again is told at first, then once a minute, and when it is over; at level debug, each time.
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
        self._lines = LineWriter(log, redact, monotonic, _named)
        self._repeats = self._lines.repeats
        self._jobs = JobLines(self._lines)

    def __call__(self, event: object) -> None:  # noqa: C901, PLR0912 -- one case for each event
        """Write the event's line, if it has one."""
        self._lines.recovered(self._repeats.due(end=isinstance(event, ShutdownEnded)))
        match event:
            case BatchSettled():
                self._batch(event)
            case RequestFailed():
                self._request(event)
            case SlotsLacking():
                self._lines.write(
                    "warning",
                    "slots_lacking",
                    **error_fields(event.error),
                    again_in_seconds=round(event.again_in_seconds, 3),
                    consequence="batches go on over the connections that there are: nothing is lost, a backlog takes "
                    "longer",
                    remedy="none is needed when the server comes back; where there are too many connections, allow "
                    "the role and the database as many as RELAY_SLOTS and one, or lower it",
                )
            case RowRetried() | RowFailed() | KeyRests():
                level, name, fields = row_line(event)
                self._lines.write(level, name, **fields)
            case TopicOpened() | TopicProbed():
                self._topic(event)
            case TopicClosed():
                self._topic_closed(event)
            case Started():
                self._lines.write("info", "started", **asdict(event))
            case SchemaDiffers():
                self._lines.write(
                    "warning",
                    "schema_differs",
                    **asdict(event),
                    consequence="none for events, which are published: a release works on the version before its own "
                    "and on the one after, for as long as a deploy takes",
                    remedy=one_version(event.schema_version, event.release_version),
                )
            case Reconnected():
                self._lines.write("info", "reconnected", database=event.database)
            case ListenConnected() | ListenLost() | Looked():
                self._sleep(event)
            case HttpListening():
                self._lines.write("info", "http_listening", host=event.host, port=event.port)
            case RelayStats():
                self._lines.write("info", "relay_stats", **asdict(event))
            case _ if isinstance(event, JobEvent):
                self._jobs.tell(event)
            case _:
                self._kernel(event)

    def _kernel(self, event: object) -> None:
        match event:
            case PassFinished():
                self._pass_finished(event)
            case PassFailed():
                self._pass_failed(event)
            case PassSkipped():
                error = "the pass before is still under way"
                self._lines.write("warning", "pass_skipped", runner=event.runner, error=error)
            case LoopDied():
                self._lines.write(
                    "error",
                    "loop_died",
                    runner=event.runner,
                    **error_fields(event.error),
                    raised_at=origin(event.error),
                    consequence="the process stops",
                )
            case CloseFailed():
                self._lines.write(
                    "error",
                    "close_failed",
                    runner=event.runner,
                    **error_fields(event.error),
                    consequence="the end of the process drops its connections; its work had ended before",
                )
            case ShutdownBegan():
                self._lines.write("info", "shutdown", reason=event.reason, soft_timeout=event.soft_timeout)
            case ShutdownEnded():
                level = "warning" if event.abandoned else "info"
                self._lines.write(level, "stopped", abandoned=list(event.abandoned), seconds=round(event.seconds, 3))

    def _sleep(self, event: ListenConnected | ListenLost | Looked) -> None:
        match event:
            case ListenConnected():
                self._lines.write("info", "listen_connected", database=event.database)
            case ListenLost():
                self._lines.write(
                    "warning",
                    "listen_lost",
                    **error_fields(event.error),
                    again_in_seconds=round(event.again_in_seconds, 3),
                    consequence="the relay polls every RELAY_POLL_MS until it hears of new events again",
                    remedy=heard_again(event.error),
                )
            case Looked():
                pass  # twice a minute, and many times as a relay goes to sleep
            case _:
                assert_never(event)

    def _batch(self, event: BatchSettled) -> None:
        self._lines.write(
            "info",
            "batch",
            claimed=event.claimed,
            published=event.published,
            retried=event.retried,
            failed=event.failed,
            released=event.claimed - event.published - event.retried - event.failed,
            size_bytes=event.size_bytes,
            ms=round(event.seconds * 1000, 1),
        )
        if self._events:
            for topic, row, message_id in ((topic, *pair) for topic, taken in event.taken.items() for pair in taken):
                self._lines.write(
                    "info",
                    "event_published",
                    event_id=row.event_id,
                    event_type=row.event_type,
                    aggregate_type=row.aggregate_type,
                    aggregate_id=row.aggregate_id,
                    created_at=row.created_at,
                    attempt_count=row.attempt_count,
                    topic=topic,
                    message_id=message_id,
                    sequence=row.id,
                    size_bytes=row.size_bytes,
                )
        if failing := set(self._repeats.fails("publish")):
            for topic in sorted(failing & event.taken.keys()):
                self._lines.worked("publish", topic)

    def _request(self, event: RequestFailed) -> None:
        # The lines of an outage speak for its requests.
        out = self._repeats.failing("topic", event.topic)
        advice = Hold() if out else self._repeats.failed("publish", event.topic, code(event.error))
        first = event.rows[0] if event.rows else None
        self._lines.failed(
            "publish",
            advice,
            **(of_row(first, len(event.rows), first.attempt_count) if first else {}),
            **of_failure(event.topic, event.error),
            consequence="what becomes of its rows is told by the lines that follow; those that none names wait",
        )

    def _topic(self, event: TopicOpened | TopicProbed) -> None:
        probes = {"probes": event.probes} if isinstance(event, TopicProbed) else {}
        advice = self._repeats.failed("topic", event.topic, code(event.error))
        self._lines.failed(
            "topic",
            advice,
            **of_failure(event.topic, event.error),
            probe_in_seconds=round(event.probe_in_seconds, 3),
            consequence=_WAIT,
            remedy=_remedy(event.topic, code(event.error)),
            **({"probes": probes.get("probes", 0)} if isinstance(advice, Summary) else {}),
        )

    def _topic_closed(self, event: TopicClosed) -> None:
        self._repeats.settle("publish", event.topic)
        if event.taken:
            self._lines.worked("topic", event.topic, probes=event.probes)
            return
        self._repeats.settle("topic", event.topic)
        self._lines.write(
            "info",
            "topic_emptied",
            topic=event.topic,
            probes=event.probes,
            seconds=round(event.seconds, 3),
            consequence="it has no rows left to be tried with; whether it takes messages is not known",
        )

    def _pass_finished(self, event: PassFinished) -> None:
        self._lines.worked("pass", event.runner)
        report = event.report
        if report.processed or report.errors or report.skipped:
            self._lines.write(
                "debug",
                "pass",
                runner=event.runner,
                processed=report.processed,
                updated=report.updated,
                skipped=report.skipped,
                errors=report.errors,
                next=report.next.value,
                seconds=round(event.seconds, 3),
            )

    def _pass_failed(self, event: PassFailed) -> None:
        advice = self._repeats.failed("pass", event.runner, code(event.error))
        self._lines.failed(
            "pass",
            advice,
            runner=event.runner,
            **error_fields(event.error),
            raised_at=origin(event.error),
            consequence="what the pass had begun is rolled back, and stays pending",
            **({} if isinstance(advice, Summary) else {"seconds": round(event.seconds, 3)}),
        )


def _named(kind: str, subject: str) -> dict[str, Any]:
    return {"runner" if kind == "pass" else "topic": subject}


def _remedy(topic: str, reason: str) -> str:
    match reason:
        case "NOT_FOUND":
            return f"topic {topic} does not exist: {created_or_corrected(topic)}"
        case "INVALID_ARGUMENT":
            return f"the broker refuses whatever is sent to topic {topic}: {created_or_corrected(topic)}"
        case "PERMISSION_DENIED":
            return f"give the relay's service account the role roles/pubsub.publisher on topic {topic}"
        case "UNAUTHENTICATED":
            return "the credentials are refused: see GOOGLE_CREDENTIALS_JSON, or GOOGLE_APPLICATION_CREDENTIALS"
        case "RESOURCE_EXHAUSTED":
            return f"a quota of the project of topic {topic} is used up: raise it, or wait"
        case _:
            return "none is needed when the broker comes back; else see whether this host reaches it"
