"""Prometheus metrics of consumers, counted from the same events as the log lines, on a registry of their own.

Needs prometheus-client (the extra `metrics`), which loads a web server: nothing else of the SDK imports this module.

    metrics = Metrics()
    async with billing.running(observe=metrics): ...
    metrics.render()        what a page of your service answers, as text/plain; version=0.0.4
    metrics.registry        or what you mount: prometheus_client.make_asgi_app(metrics.registry)
"""

import time
from collections import defaultdict

from consumers.backlog import InboxStats
from consumers.dedup.protocol import Mode
from consumers.events import (
    ArtifactReused,
    ArtifactUploaded,
    ClaimMade,
    CompletionUnwritten,
    ConfirmFailed,
    ConsumerStarted,
    ConsumerStats,
    ConsumerStopped,
    DeadLetterFailed,
    DeliveriesLost,
    DeliverySettled,
    Fate,
    HandlerOverdue,
    Heartbeat,
    HeartbeatFailed,
    InboxAway,
    InboxBack,
    InboxCleaned,
    LeaseRecovered,
    NoteLost,
    OutcomeIgnored,
    PipelineFault,
    ResultUnkept,
    RevisionRequeued,
    ScratchLeft,
    SettleFailed,
    SourceAway,
    SourceBack,
    StageEnded,
    StoreAway,
    StoreBack,
    Stored,
    Throttled,
    TicketsAsked,
    UpkeepFailed,
)
from consumers.inbox_lines import reason_of
from consumers.metric_definitions import DEFINITIONS
from consumers.sources.source import Origin
from relay.kernel.failure import code
from relay.kernel.metric import MOST_VALUES, Bounded, markdown
from relay.kernel.metric_set import CONTENT_TYPE, MetricSet
from relay.upkeep.metrics import JobMetrics

__all__ = ["CONTENT_TYPE", "DEFINITIONS", "MOST_VALUES", "Metrics", "table"]

# Those in which a handler ran.
_HANDLED = frozenset(
    {
        Fate.DONE,
        Fate.SENT,
        Fate.SKIPPED,
        Fate.RETRIED,
        Fate.DEFERRED,
        Fate.DEAD,
        Fate.INVALID,
        Fate.LEASE_LOST,
        Fate.RELEASED,
    }
)
_FAILED = frozenset({Fate.RETRIED, Fate.DEAD, Fate.INVALID, Fate.UNDECODABLE, Fate.LEASE_LOST})


def table() -> str:
    """Every metric, as a Markdown table."""
    return markdown(DEFINITIONS)


class Metrics:
    """Listens to what happens to any number of consumers, and counts it."""

    def __init__(self) -> None:
        self._set = MetricSet(DEFINITIONS)
        self._jobs = JobMetrics(self._set, time.time)
        self._types: defaultdict[str, Bounded] = defaultdict(Bounded)
        self._codes: defaultdict[str, Bounded] = defaultdict(Bounded)
        self._stages: defaultdict[str, Bounded] = defaultdict(Bounded)
        self.registry = self._set.registry
        """A registry with these metrics alone."""

    def render(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return self._set.render()

    def __call__(self, event: object) -> None:
        """Count the event."""
        match event:
            case DeliverySettled():
                self._settled(event)
            case StoreAway(consumer) | StoreBack(consumer):
                self._show("consumers_store_available", consumer, int(isinstance(event, StoreBack)))
            case SourceAway(consumer) | SourceBack(consumer):
                self._show("consumers_source_available", consumer, int(isinstance(event, SourceBack)))
            case ConsumerStarted(consumer):
                for name in ("receiving", "store_available", "source_available"):
                    self._show(f"consumers_{name}", consumer, 1)
                if event.dedup == Mode.INBOX.value:
                    fills = "move" if event.subscription == Origin.OUTBOX.value else "receive"
                    for operation in (fills, "claim"):
                        self._show("consumers_inbox_available", consumer, 1, operation)
            case ConsumerStopped(consumer):
                self._show("consumers_receiving", consumer, 0)
            case ConsumerStats():
                self._stats(event)
        self._outages(event)
        self._faults(event)
        self._inbox(event)
        self._upkeep(event)
        self._work(event)
        self._sends(event)
        self._jobs(event)

    def _settled(self, event: DeliverySettled) -> None:
        consumer, event_type = event.consumer, self._type(event.consumer, event.subject.event_type)
        self._set.count("consumers_deliveries_total", consumer, event_type, event.fate.value)
        if event.fate in _HANDLED:
            self._set.observe("consumers_handler_seconds", event.seconds, consumer, event_type)
        if event.fate is Fate.DONE and event.attempt == 1 and event.lag is not None:
            self._set.observe("consumers_lag_seconds", event.lag, consumer)
        if event.fate is Fate.RETRIED:
            self._count_failure("consumers_retries_total", consumer, event.code or event.fate.name)
        if event.fate in _FAILED:
            self._count_failure("consumers_failures_total", consumer, event.code or event.fate.name)

    def _outages(self, event: object) -> None:
        match event:
            case StoreAway(consumer, error):
                self._count_failure("consumers_store_failures_total", consumer, code(error))
            case SourceAway(consumer, _, error):
                self._count_failure("consumers_source_failures_total", consumer, code(error))
            case DeadLetterFailed(consumer, error=error):
                self._count_failure("consumers_dead_letter_failures_total", consumer, code(error))
            case SettleFailed(consumer, operation=operation, messages=messages):
                self._set.count("consumers_unsettled_messages_total", consumer, operation, by=messages)
            case DeliveriesLost(consumer, messages=messages):
                self._set.count("consumers_lost_messages_total", consumer, by=messages)

    def _faults(self, event: object) -> None:
        match event:
            case HandlerOverdue(consumer, subject):
                event_type = self._type(consumer, subject.event_type)
                self._set.count("consumers_overdue_handlers_total", consumer, event_type)
            case CompletionUnwritten(consumer):
                self._set.count("consumers_unwritten_completions_total", consumer)
            case ResultUnkept(consumer, subject):
                event_type = self._type(consumer, subject.event_type)
                self._set.count("consumers_unkept_results_total", consumer, event_type)
            case OutcomeIgnored(consumer, completed=completed):
                reason = "completed" if completed else "lease_lost"
                self._set.count("consumers_ignored_outcomes_total", consumer, reason)
            case PipelineFault(consumer):
                self._set.count("consumers_pipeline_faults_total", consumer)
            case Throttled(consumer, event_type):
                self._set.count("consumers_throttles_total", consumer, self._type(consumer, event_type))

    def _inbox(self, event: object) -> None:
        match event:
            case Stored(consumer, stored, duplicates):
                self._set.count("consumers_arrivals_total", consumer, "new", by=stored)
                self._set.count("consumers_arrivals_total", consumer, "duplicate", by=duplicates)
            case ClaimMade(consumer, way):
                self._set.count("consumers_claims_total", consumer, way)
                self._set.count("consumers_claimed_deliveries_total", consumer, way, by=event.found)
                self._set.count("consumers_claim_conflicts_total", consumer, by=event.conflicts)
            case Heartbeat(consumer):
                self._set.count("consumers_heartbeats_total", consumer)
            case HeartbeatFailed(consumer, error=error):
                self._count_failure("consumers_heartbeat_failures_total", consumer, reason_of(error))
            case LeaseRecovered(consumer, alone=alone):
                self._set.count("consumers_recovered_total", consumer, "alone" if alone else "beside_others")
            case InboxAway(consumer, operation, error):
                reason = self._codes[consumer](reason_of(error))
                self._set.count("consumers_inbox_failures_total", consumer, operation, reason)
                self._show("consumers_inbox_available", consumer, 0, operation)
            case InboxBack(consumer, operation):
                self._show("consumers_inbox_available", consumer, 1, operation)

    def _upkeep(self, event: object) -> None:
        match event:
            case RevisionRequeued(consumer, deliveries=deliveries):
                self._set.count("consumers_requeued_total", consumer, by=deliveries)
            case InboxCleaned(consumer, deliveries):
                self._set.count("consumers_cleaned_total", consumer, by=deliveries)
            case UpkeepFailed(consumer, work, error):
                reason = self._codes[consumer](reason_of(error))
                self._set.count("consumers_upkeep_failures_total", consumer, work, reason)

    def _work(self, event: object) -> None:
        match event:
            case StageEnded(consumer, stage=stage, seconds=seconds, code=reason):
                named = self._stages[consumer](stage)
                self._set.observe("consumers_stage_seconds", seconds, consumer, named)
                if reason:
                    self._set.count("consumers_stage_failures_total", consumer, named, self._codes[consumer](reason))
            case ArtifactUploaded(consumer, subject):
                event_type = self._type(consumer, subject.event_type)
                self._set.count("consumers_uploaded_artifacts_total", consumer, event_type)
            case ArtifactReused(consumer, subject):
                event_type = self._type(consumer, subject.event_type)
                self._set.count("consumers_idempotent_skips_total", consumer, event_type)
            case NoteLost(consumer, error=error):
                self._count_failure("consumers_lost_notes_total", consumer, code(error))
            case ScratchLeft(consumer):
                self._set.count("consumers_left_scratch_directories_total", consumer)

    def _sends(self, event: object) -> None:
        match event:
            case TicketsAsked(consumer, event_type, verdicts=verdicts):
                for verdict, count in verdicts.items():
                    labels = (consumer, self._type(consumer, event_type), verdict)
                    self._set.count("consumers_confirmations_total", *labels, by=count)
            case ConfirmFailed(consumer, error=error):
                self._count_failure("consumers_confirm_failures_total", consumer, code(error))

    def _stats(self, event: ConsumerStats) -> None:
        figures = {
            "consumers_running_handlers": event.running,
            "consumers_waiting_deliveries": event.waiting,
            "consumers_resting_deliveries": event.resting,
            "consumers_held_messages": event.held_messages,
            "consumers_held_bytes": event.held_bytes,
            "consumers_oldest_running_seconds": event.oldest_running_seconds,
        }
        for name, figure in figures.items():
            self._show(name, event.consumer, figure)
        if event.inbox is not None:
            self._queue(event.consumer, event.inbox)

    def _queue(self, consumer: str, inbox: InboxStats) -> None:
        self._show("consumers_leases", consumer, inbox.leases)
        self._show("consumers_connections_in_use", consumer, inbox.connections.in_use)
        self._show("consumers_connections_waiting", consumer, inbox.connections.waiting)
        for name in ("due", "oldest_due_seconds", "processing", "sent", "failed"):
            gauge = f"consumers_queue_{name}"
            if inbox.queue is None:
                # What nobody could read is no 0, and not what it was a while ago.
                self._set.forget_series(gauge, consumer)
            else:
                self._show(gauge, consumer, getattr(inbox.queue, name))

    def _show(self, name: str, consumer: str, value: float, *labels: str) -> None:
        self._set.gauge(name).labels(consumer, *labels).set(value)

    def _type(self, consumer: str, event_type: str) -> str:
        """A label of its own for the first 50 types of each consumer: messages may say what they want."""
        return self._types[consumer](event_type)

    def _count_failure(self, name: str, consumer: str, reason: str) -> None:
        self._set.count(name, consumer, self._codes[consumer](reason))
