"""Every log line of consumers: what `docs/consumers-logs.md` shows and the tests hold us to."""

from dataclasses import fields

from consumers.events import ConsumerStarted, ConsumerStats, TicketsAsked
from relay.kernel.log_line import Line, markdown
from relay.upkeep import lines as job_lines
from relay.upkeep import pass_lines

_EVENT = ("consumer", "event_id", "event_type", "aggregate_type", "aggregate_id", "created_at")
_SETTLED = (
    *_EVENT,
    "subscription",
    "message_id",
    "outcome",
    "attempt",
    "seconds",
    "lag_seconds",
    "again_in_seconds",
)
_ERROR = ("code", "error")
_ADVICE = ("consequence", "remedy")
_SENT = ("consumer", "delivery_id", "event_id", "event_type", "outcome", "attempt")
_OVER = ("failures", "seconds", "recoveries")

LINES = (
    Line(
        "consumer_started",
        ("info",),
        "a consumer has reached what it needs, and receives",
        tuple(field.name for field in fields(ConsumerStarted)),
    ),
    Line(
        "jobs_started",
        ("info",),
        "the jobs of RELAY_APP wait for their slots, beside consumers or alone",
        ("runners", "schema"),
    ),
    Line(
        "start_warning",
        ("warning",),
        "something at the start that endangers what the consumer promises, and does not keep it from working",
        ("consumer", "warning"),
    ),
    Line(
        "delivery_failed",
        ("warning", "error"),
        "an event failed: `retried` and `lease_lost` are warnings, `dead`, `invalid` and `undecodable` errors",
        (*_SETTLED, *_ERROR, "raised_at", *_ADVICE),
    ),
    Line(
        "delivery_settled",
        ("info",),
        "a delivery came to another end; only with `CONSUMERS_LOG_EVENTS=on`",
        (*_SETTLED, "reason"),
    ),
    Line(
        "delivery_waits",
        ("debug",),
        "a delivery is looked at again later, uncounted: `busy` elsewhere, or `held` as the store is away",
        (*_SETTLED, "reason"),
    ),
    Line(
        "handler_overdue",
        ("warning",),
        "a handler in a thread runs for longer than its timeout; once for each",
        (*_EVENT, "seconds", *_ADVICE),
    ),
    Line(
        "outcome_ignored",
        ("warning",),
        "a handler answered after its lease was lost, or after it had completed the event itself",
        (*_EVENT, "answer", *_ADVICE),
    ),
    Line(
        "completion_unwritten",
        ("error",),
        "the process ended while the store was away, after a handler had its effect",
        (*_EVENT, *_ERROR, *_ADVICE),
    ),
    Line(
        "result_unkept",
        ("warning",),
        "a handler returned what is no JSON; the event was completed without it",
        (*_EVENT, *_ERROR, "kind", *_ADVICE),
    ),
    Line(
        "pipeline_fault",
        ("error",),
        "the SDK itself failed on a delivery",
        (*_EVENT, *_ERROR, "raised_at", "again_in_seconds", *_ADVICE),
    ),
    Line(
        "stage_failed",
        ("warning",),
        "a stage of a handler failed (`ctx.stage`); what the event comes to is in its own line",
        (*_EVENT, "stage", "seconds", "code"),
    ),
    Line(
        "stage_ended",
        ("debug", "info"),
        "a stage came to its end, or was cut short (`CANCELLED`); info with `CONSUMERS_LOG_EVENTS=on`",
        (*_EVENT, "stage", "seconds", "code"),
    ),
    Line("progress_made", ("debug",), "what a handler said by `ctx.progress`", (*_EVENT, "percent")),
    Line(
        "artifact_uploaded",
        ("debug", "info"),
        "an artifact was made and stored (`ctx.artifact`); info with `CONSUMERS_LOG_EVENTS=on`",
        (*_EVENT, "artifact", "bytes", "seconds"),
    ),
    Line(
        "artifact_reused",
        ("debug", "info"),
        "it was whole already, and not made again; info with `CONSUMERS_LOG_EVENTS=on`",
        (*_EVENT, "artifact", "bytes"),
    ),
    Line(
        "note_lost",
        ("warning",),
        "something could not be noted in a delivery's history",
        (*_EVENT, "note", *_ERROR, *_ADVICE),
    ),
    Line(
        "scratch_left",
        ("warning",),
        "the scratch directory of an attempt could not be removed",
        (*_EVENT, *_ERROR, *_ADVICE),
    ),
    Line(
        "store_failed",
        ("error",),
        "the store does not answer: nothing is begun until it does",
        ("consumer", *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "store_failing",
        ("error",),
        "it still does not; at most once a minute",
        ("consumer", *_ERROR, "again_in_seconds", *_ADVICE, *_OVER),
    ),
    Line("store_recovered", ("info",), "it answers again", ("consumer", *_OVER)),
    Line(
        "source_failed",
        ("error",),
        "the subscription cannot be read",
        ("consumer", "subscription", *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "source_failing",
        ("error",),
        "it still cannot; at most once a minute",
        ("consumer", "subscription", *_ERROR, "again_in_seconds", *_ADVICE, *_OVER),
    ),
    Line("source_recovered", ("info",), "it is read again", ("consumer", *_OVER)),
    Line(
        "settle_failed",
        ("error",),
        "acknowledgements, extensions or what was given back could not be sent in time",
        ("consumer", "subscription", "operation", "messages", *_ERROR, *_ADVICE),
    ),
    Line(
        "settle_failing",
        ("error",),
        "and again, with less than a minute in between; at most once a minute",
        ("consumer", "subscription", "operation", "messages", *_ERROR, *_ADVICE, *_OVER),
    ),
    Line(
        "deliveries_lost",
        ("warning",),
        "the subscription took deliveries back while they were held",
        ("consumer", "subscription", "messages", "error", *_ADVICE),
    ),
    Line(
        "dead_letter_failed",
        ("error",),
        "the dead-letter topic did not take a message",
        (*_EVENT, "topic", *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "dead_letter_failing",
        ("error",),
        "it still takes none; at most once a minute",
        ("consumer", "topic", *_ERROR, "again_in_seconds", *_ADVICE, *_OVER),
    ),
    Line("dead_letter_recovered", ("info",), "it takes messages again", ("consumer", *_OVER)),
    Line("heartbeat", ("debug",), "the leases of an inbox were renewed", ("consumer", "leases")),
    Line(
        "heartbeat_failed",
        ("error",),
        "the leases of an inbox could not be renewed",
        ("consumer", "leases", *_ERROR, *_ADVICE),
    ),
    Line(
        "heartbeat_failing",
        ("error",),
        "they still cannot; at most once a minute",
        ("consumer", "leases", *_ERROR, *_ADVICE, *_OVER),
    ),
    Line("heartbeat_recovered", ("info",), "they are renewed again", ("consumer", *_OVER)),
    Line(
        "lease_recovered",
        ("warning",),
        "a process was silent for longer than its lease: what it worked on is handled again",
        ("consumer", "delivery_id", "event_id", "event_type", "owner", "attempt", "alone", *_ADVICE),
    ),
    Line(
        "stored",
        ("debug",),
        "a batch of arrivals is in the inbox",
        ("consumer", "stored", "duplicates", "seconds"),
    ),
    Line(
        "moved",
        ("debug",),
        "a batch of events went from the outbox into the inbox, for all subscribers",
        ("consumer", "events", "deliveries", "seconds"),
    ),
    Line(
        "wake_up_lost",
        ("warning",),
        "the consumer does not hear of new events in the outbox, and polls until it does again",
        ("consumer", *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "inbox_failed",
        ("error",),
        "the inbox does not answer: nothing is received, or nothing begun, until it does",
        ("consumer", "operation", *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "inbox_failing",
        ("error",),
        "it still does not; at most once a minute",
        ("consumer", "operation", *_ERROR, "again_in_seconds", *_ADVICE, *_OVER),
    ),
    Line("inbox_recovered", ("info",), "it answers again", ("consumer", "operation", *_OVER)),
    Line(
        "connections_spent",
        ("warning",),
        "handlers have waited for a connection of `ctx.transaction()` for a second",
        ("consumer", "most", "waiting", *_ADVICE),
    ),
    Line("connections_free", ("info",), "none waits any more", ("consumer", "seconds")),
    Line(
        "inbox_cleaned",
        ("info",),
        "deliveries that ended longer ago than `INBOX_RETENTION` were removed",
        ("consumer", "deliveries", "seconds"),
    ),
    Line(
        "revision_requeued",
        ("info",),
        "what an older revision of a handler has ended is handled again",
        ("consumer", "handler", "revision", "deliveries", "seconds"),
    ),
    Line(
        "upkeep_failed",
        ("warning",),
        "cleaning, or looking for old revisions, failed, and is tried again",
        ("consumer", "operation", *_ERROR, *_ADVICE),
    ),
    Line(
        "tickets_asked", ("debug",), "a confirming function has answered", tuple(f.name for f in fields(TicketsAsked))
    ),
    Line(
        "send_confirmed",
        ("info",),
        "what was sent has arrived, by its provider's word; only with `CONSUMERS_LOG_EVENTS=on`",
        _SENT,
    ),
    Line(
        "send_failed",
        ("warning", "error"),
        "a provider says that a send failed: `retried` is a warning, `dead`, `invalid` and `unknown` are errors",
        (*_SENT, *_ERROR, "again_in_seconds", *_ADVICE),
    ),
    Line(
        "confirm_failed",
        ("error",),
        "a confirming function, or what `on_invalid` registers, raised or answered wrongly",
        ("consumer", "event_type", "tickets", *_ERROR, "raised_at", "again_in_seconds", *_ADVICE),
    ),
    Line(
        "confirm_failing",
        ("error",),
        "it still does; at most once a minute",
        ("consumer", "event_type", "tickets", *_ERROR, "raised_at", "again_in_seconds", *_ADVICE, *_OVER),
    ),
    Line("confirm_recovered", ("info",), "it answers again", ("consumer", "event_type", *_OVER)),
    *job_lines.LINES,
    *pass_lines.LINES,
    Line("throttled", ("info",), "a handler called `ctx.throttle_all`", ("consumer", "event_type", "seconds")),
    Line(
        "consumer_stats",
        ("info",),
        "every `CONSUMERS_STATS_MS` and in the end: what the consumer did since the line before, and how it is",
        tuple(field.name for field in fields(ConsumerStats)),
    ),
    Line(
        "consumer_died",
        ("error",),
        "a consumer ended by an error, and with it a process of consumers; in a service, also one that cannot start",
        ("consumer", *_ERROR, "raised_at", "consequence"),
    ),
    Line("shutdown", ("info",), "the process was asked to stop", ("reason", "soft_timeout")),
    Line(
        "consumer_stopped",
        ("info", "warning"),
        "a consumer came to its end; a warning when handlers had to be abandoned, which are named",
        ("consumer", "seconds", "released", "abandoned"),
    ),
    Line(
        "stopped",
        ("info", "warning"),
        "the end; a warning when a handler had to be abandoned",
        ("abandoned", "seconds"),
    ),
    Line(
        "redaction_failed",
        ("error",),
        "once: the hook of `CONSUMERS_LOG_REDACT` raised, or returned no line",
        ("code", "consequence"),
    ),
)


def table() -> str:
    """Every line, as a Markdown table."""
    return markdown(LINES)
