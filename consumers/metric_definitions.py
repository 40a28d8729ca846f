"""Every metric of consumers: what `docs/consumers-metrics.md` shows and `consumers.metrics` counts."""

from types import MappingProxyType

from relay.kernel.metric import Definition, Kind
from relay.upkeep import metrics as jobs

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_HANDLER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
_STAGE_SECONDS = (*_HANDLER_SECONDS, 1_800.0, 3_600.0)
_BY_TYPE = ("consumer", "event_type")
_BY_STAGE = ("consumer", "stage")
DEFINITIONS = MappingProxyType(
    {
        "consumers_deliveries_total": Definition(
            _COUNTER, "Times that a delivery was worked on, by what became of it.", (*_BY_TYPE, "outcome")
        ),
        "consumers_failures_total": Definition(
            _COUNTER, "Those that failed, by the code of the reason.", ("consumer", "code")
        ),
        "consumers_retries_total": Definition(
            _COUNTER, "Those that failed and come again, by the code of the reason.", ("consumer", "code")
        ),
        "consumers_ignored_outcomes_total": Definition(
            _COUNTER,
            "Answers of handlers that did not count: lease_lost, or the handler had completed the event itself.",
            ("consumer", "reason"),
        ),
        "consumers_handler_seconds": Definition(
            _HISTOGRAM, "How long a handler took, however it ended.", _BY_TYPE, _HANDLER_SECONDS
        ),
        "consumers_lag_seconds": Definition(
            _HISTOGRAM,
            "From an event's being stored to its being done; of first attempts that succeeded.",
            ("consumer",),
            _LAG_SECONDS,
        ),
        "consumers_store_failures_total": Definition(
            _COUNTER, "How often the deduplication store was asked in vain.", ("consumer", "code")
        ),
        "consumers_source_failures_total": Definition(
            _COUNTER, "How often the subscription could not be read.", ("consumer", "code")
        ),
        "consumers_unsettled_messages_total": Definition(
            _COUNTER, "Messages that could not be acknowledged, extended or given back.", ("consumer", "operation")
        ),
        "consumers_lost_messages_total": Definition(
            _COUNTER, "Messages that the subscription took back while they were held.", ("consumer",)
        ),
        "consumers_dead_letter_failures_total": Definition(
            _COUNTER, "How often the dead-letter topic did not take a message.", ("consumer", "code")
        ),
        "consumers_overdue_handlers_total": Definition(
            _COUNTER, "Handlers in threads that ran for longer than their timeout.", _BY_TYPE
        ),
        "consumers_unwritten_completions_total": Definition(
            _COUNTER, "Effects of which the store could not be told.", ("consumer",)
        ),
        "consumers_unkept_results_total": Definition(
            _COUNTER, "Results of handlers that could not be kept, for they are no JSON.", _BY_TYPE
        ),
        "consumers_pipeline_faults_total": Definition(
            _COUNTER, "Failures of the SDK itself, which should be none.", ("consumer",)
        ),
        "consumers_stage_seconds": Definition(
            _HISTOGRAM, "How long a stage of a handler took, however it ended.", _BY_STAGE, _STAGE_SECONDS
        ),
        "consumers_stage_failures_total": Definition(
            _COUNTER, "Stages that failed, by the code of the reason.", (*_BY_STAGE, "code")
        ),
        "consumers_uploaded_artifacts_total": Definition(_COUNTER, "Artifacts that were made and stored.", _BY_TYPE),
        "consumers_idempotent_skips_total": Definition(
            _COUNTER, "Artifacts that were whole already, so that nothing had to be made.", _BY_TYPE
        ),
        "consumers_lost_notes_total": Definition(
            _COUNTER,
            "What could not be noted in the history of a delivery, by the code of the reason.",
            ("consumer", "code"),
        ),
        "consumers_left_scratch_directories_total": Definition(
            _COUNTER, "Scratch directories that could not be removed.", ("consumer",)
        ),
        "consumers_throttles_total": Definition(_COUNTER, "Calls of `ctx.throttle_all`.", _BY_TYPE),
        "consumers_store_available": Definition(_GAUGE, "1 while the store answers, 0 while not.", ("consumer",)),
        "consumers_source_available": Definition(
            _GAUGE, "1 while the subscription can be read, 0 while not.", ("consumer",)
        ),
        "consumers_receiving": Definition(
            _GAUGE, "1 from the start of the consumer to the beginning of its end.", ("consumer",)
        ),
        "consumers_running_handlers": Definition(_GAUGE, "Deliveries that are worked on.", ("consumer",)),
        "consumers_waiting_deliveries": Definition(
            _GAUGE, "Deliveries that wait for a free handler, or behind another one of their key.", ("consumer",)
        ),
        "consumers_resting_deliveries": Definition(
            _GAUGE, "Deliveries that wait for their next attempt.", ("consumer",)
        ),
        "consumers_held_messages": Definition(_GAUGE, "Messages that are held, all of these included.", ("consumer",)),
        "consumers_held_bytes": Definition(_GAUGE, "And what they take.", ("consumer",)),
        "consumers_oldest_running_seconds": Definition(
            _GAUGE, "How long the longest of the running handlers has run.", ("consumer",)
        ),
        "consumers_arrivals_total": Definition(
            _COUNTER, "Events that came to the inbox: new ones, and duplicates of what it has.", ("consumer", "found")
        ),
        "consumers_claims_total": Definition(
            _COUNTER,
            "Statements that asked the inbox for deliveries: ready ones, first ones of a key, or one to run alone.",
            ("consumer", "way"),
        ),
        "consumers_claimed_deliveries_total": Definition(
            _COUNTER, "Deliveries that they brought.", ("consumer", "way")
        ),
        "consumers_claim_conflicts_total": Definition(
            _COUNTER, "Deliveries that were found free, and that another process had before us.", ("consumer",)
        ),
        "consumers_heartbeats_total": Definition(
            _COUNTER, "How often the leases of the inbox were renewed, all at once.", ("consumer",)
        ),
        "consumers_heartbeat_failures_total": Definition(
            _COUNTER, "How often they could not be.", ("consumer", "code")
        ),
        "consumers_recovered_total": Definition(
            _COUNTER,
            "Deliveries taken from a process that was silent for longer than its lease: beside_others, or alone.",
            ("consumer", "reason"),
        ),
        "consumers_requeued_total": Definition(
            _COUNTER, "Deliveries that an older revision of a handler ended, to be handled again.", ("consumer",)
        ),
        "consumers_cleaned_total": Definition(
            _COUNTER, "Deliveries removed because they ended longer ago than INBOX_RETENTION.", ("consumer",)
        ),
        "consumers_upkeep_failures_total": Definition(
            _COUNTER, "How often cleaning, or looking for old revisions, failed.", ("consumer", "operation", "code")
        ),
        "consumers_confirmations_total": Definition(
            _COUNTER,
            "Times that a provider was asked what became of a send, by the verdict; open is not yet.",
            (*_BY_TYPE, "verdict"),
        ),
        "consumers_confirm_failures_total": Definition(
            _COUNTER, "How often a confirming function raised or answered wrongly.", ("consumer", "code")
        ),
        "consumers_inbox_failures_total": Definition(
            _COUNTER,
            "How often the inbox was asked in vain: to store (receive, move), for what is due (claim), sent (confirm).",
            ("consumer", "operation", "code"),
        ),
        "consumers_inbox_available": Definition(_GAUGE, "1 while it answers, 0 while not.", ("consumer", "operation")),
        "consumers_connections_in_use": Definition(
            _GAUGE,
            "Connections of `ctx.transaction()` that handlers have, `INBOX_CONNECTIONS` at most.",
            ("consumer",),
        ),
        "consumers_connections_waiting": Definition(
            _GAUGE, "Handlers that wait for one, as all are in use.", ("consumer",)
        ),
        "consumers_leases": Definition(_GAUGE, "Deliveries of the inbox that this process has.", ("consumer",)),
        "consumers_queue_due": Definition(
            _GAUGE,
            "Deliveries that may be handled now, or wait behind another one of their key; of all processes.",
            ("consumer",),
        ),
        "consumers_queue_oldest_due_seconds": Definition(
            _GAUGE, "How long the oldest of them has been due; 0 without any.", ("consumer",)
        ),
        "consumers_queue_processing": Definition(
            _GAUGE, "Deliveries that some process has; of all processes.", ("consumer",)
        ),
        "consumers_queue_sent": Definition(_GAUGE, "Deliveries that wait to be confirmed.", ("consumer",)),
        "consumers_queue_failed": Definition(_GAUGE, "Deliveries that have failed for good.", ("consumer",)),
        **jobs.DEFINITIONS,
    }
)
