"""Every log line with its level, its occasion and its fields: what `docs/logs.md` shows and the tests hold us to."""

from dataclasses import fields

from relay.kernel.log_line import Line, markdown
from relay.operate.events import SchemaDiffers, Started
from relay.operate.stats import RelayStats
from relay.upkeep import lines as job_lines

_ROW = ("event_id", "event_type", "aggregate_type", "aggregate_id", "created_at", "batch_size", "attempt_count")
_FAILURE = ("topic", "code", "error", "consequence")
_OVER = ("failures", "seconds", "recoveries")

LINES = (
    Line(
        "started",
        ("info",),
        "the outbox was reached for the first time",
        tuple(field.name for field in fields(Started)),
    ),
    Line(
        "schema_differs",
        ("warning",),
        "the outbox has the schema of the release before this one or after it; once, until it has another",
        (*(field.name for field in fields(SchemaDiffers)), "consequence", "remedy"),
    ),
    Line("reconnected", ("info",), "the outbox was reached again, after its connection was lost", ("database",)),
    Line(
        "listen_connected",
        ("info",),
        "the relay hears of new events; while there are none it sleeps, or polls where another relay sleeps",
        ("database",),
    ),
    Line(
        "listen_lost",
        ("warning",),
        "the relay does not hear of new events and polls; once, until it hears of them again",
        ("code", "error", "again_in_seconds", "consequence", "remedy"),
    ),
    Line(
        "slots_lacking",
        ("warning",),
        "the database takes no further connection; at most once a minute",
        ("code", "error", "again_in_seconds", "consequence", "remedy"),
    ),
    Line("http_listening", ("info",), "health and metrics are served", ("host", "port")),
    Line(
        "batch",
        ("info",),
        "a batch was committed",
        ("claimed", "published", "retried", "failed", "released", "size_bytes", "ms"),
    ),
    Line(
        "event_published",
        ("info",),
        "an event was published; only with `RELAY_LOG_EVENTS=on`",
        (
            "event_id",
            "event_type",
            "aggregate_type",
            "aggregate_id",
            "created_at",
            "attempt_count",
            "topic",
            "message_id",
            "sequence",
            "size_bytes",
        ),
    ),
    Line(
        "publish_failed",
        ("error",),
        "the broker did not take a request; the event's fields are those of its first row, `batch_size` is its rows",
        (*_ROW, *_FAILURE),
    ),
    Line(
        "publish_failing",
        ("error",),
        "requests for the topic go on failing; at most once a minute",
        (*_ROW, *_FAILURE, *_OVER),
    ),
    Line("publish_recovered", ("info",), "a request for the topic was taken again", ("topic", *_OVER)),
    Line(
        "row_retried",
        ("warning",),
        "a row paid with an attempt, and comes again after the delay",
        (*_ROW, *_FAILURE, "delay_seconds"),
    ),
    Line("row_failed", ("error",), "a row is out of the claim for good", (*_ROW, *_FAILURE, "reason", "blocks_key")),
    Line(
        "key_rests",
        ("warning",),
        "the broker takes others of the topic, and says that an ordering key is too fast",
        (*_ROW, *_FAILURE, "delay_seconds"),
    ),
    Line(
        "topic_failed",
        ("error",),
        "a topic takes nothing; its rows wait, and none of them pays",
        (*_FAILURE, "remedy", "probe_in_seconds"),
    ),
    Line(
        "topic_failing",
        ("error",),
        "the topic still takes nothing; at most once a minute",
        (*_FAILURE, "remedy", "probe_in_seconds", "probes", *_OVER),
    ),
    Line(
        "topic_recovered",
        ("info",),
        "the topic takes messages again; a line that was kept back, because there were many, has no `probes`",
        ("topic", "probes", *_OVER),
    ),
    Line(
        "topic_emptied",
        ("info",),
        "a topic that took nothing has no rows left: others published them, or they were discarded",
        ("topic", "probes", "seconds", "consequence"),
    ),
    Line(
        "pass",
        ("debug",),
        "a pass that found something came to its end",
        ("runner", "processed", "updated", "skipped", "errors", "next", "seconds"),
    ),
    Line(
        "pass_failed",
        ("error",),
        "a pass raised, as when the database is away",
        ("runner", "code", "error", "raised_at", "seconds", "consequence"),
    ),
    Line(
        "pass_failing",
        ("error",),
        "passes go on failing; at most once a minute",
        ("runner", "code", "error", "raised_at", "consequence", *_OVER),
    ),
    Line("pass_recovered", ("info",), "a pass came to its end again", ("runner", *_OVER)),
    Line("pass_skipped", ("warning",), "the runner was still busy with the pass before", ("runner", "error")),
    Line(
        "loop_died",
        ("error",),
        "a runner's loop ended by an error, and with it the process",
        ("runner", "code", "error", "raised_at", "consequence"),
    ),
    Line(
        "close_failed",
        ("error",),
        "a runner did not let go of its connections",
        ("runner", "code", "error", "consequence"),
    ),
    *job_lines.LINES,
    Line("shutdown", ("info",), "the process was asked to stop", ("reason", "soft_timeout")),
    Line(
        "stopped", ("info", "warning"), "the end; a warning when a pass had to be abandoned", ("abandoned", "seconds")
    ),
    Line(
        "relay_stats",
        ("info",),
        "every `RELAY_STATS_MS`: how the outbox is, and what this process did since the line before",
        tuple(field.name for field in fields(RelayStats)),
    ),
    Line(
        "redaction_failed",
        ("error",),
        "once: the hook of `RELAY_LOG_REDACT` raised, or returned no line",
        ("code", "consequence"),
    ),
)


def table() -> str:
    """Every line, as a Markdown table."""
    return markdown(LINES)
