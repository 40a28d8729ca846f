"""Prometheus metrics of consumers, counted from the same events as the log lines, on a registry of their own.

Needs prometheus-client (the extra `metrics`), which loads a web server: nothing else of the SDK imports this module.

    metrics = Metrics()
    async with billing.running(observe=metrics): ...
    metrics.render()        what a page of your service answers, as text/plain; version=0.0.4
    metrics.registry        or what you mount: prometheus_client.make_asgi_app(metrics.registry)
"""

from collections import defaultdict
from types import MappingProxyType

from consumers.events import (
    ArtifactReused,
    ArtifactUploaded,
    CompletionUnwritten,
    ConsumerStarted,
    ConsumerStats,
    ConsumerStopped,
    DeadLetterFailed,
    DeliveriesLost,
    DeliverySettled,
    Fate,
    HandlerOverdue,
    NoteLost,
    PipelineFault,
    ResultUnkept,
    ScratchLeft,
    SettleFailed,
    SourceAway,
    SourceBack,
    StageEnded,
    StoreAway,
    StoreBack,
    Throttled,
)
from relay.kernel.failure import code
from relay.kernel.metric import MOST_VALUES, Bounded, Definition, Kind, markdown
from relay.kernel.metric_set import CONTENT_TYPE, MetricSet

__all__ = ["CONTENT_TYPE", "DEFINITIONS", "MOST_VALUES", "Metrics", "table"]

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_HANDLER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
_STAGE_SECONDS = (*_HANDLER_SECONDS, 1_800.0, 3_600.0)
_BY_TYPE = ("consumer", "event_type")
_BY_STAGE = ("consumer", "stage")
# Those in which a handler ran.
_HANDLED = frozenset(
    {
        Fate.DONE,
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

DEFINITIONS = MappingProxyType(
    {
        "consumers_deliveries_total": Definition(
            _COUNTER, "Times that a delivery was worked on, by what became of it.", (*_BY_TYPE, "outcome")
        ),
        "consumers_failures_total": Definition(
            _COUNTER, "Those that failed, by the code of the reason.", ("consumer", "code")
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
    }
)


def table() -> str:
    """Every metric, as a Markdown table."""
    return markdown(DEFINITIONS)


class Metrics:
    """Listens to what happens to any number of consumers, and counts it."""

    def __init__(self) -> None:
        self._set = MetricSet(DEFINITIONS)
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
            case ConsumerStopped(consumer):
                self._show("consumers_receiving", consumer, 0)
            case ConsumerStats():
                self._stats(event)
        self._outages(event)
        self._faults(event)
        self._work(event)

    def _settled(self, event: DeliverySettled) -> None:
        consumer, event_type = event.consumer, self._type(event.consumer, event.subject.event_type)
        self._set.count("consumers_deliveries_total", consumer, event_type, event.fate.value)
        if event.fate in _HANDLED:
            self._set.observe("consumers_handler_seconds", event.seconds, consumer, event_type)
        if event.fate is Fate.DONE and event.attempt == 1 and event.lag is not None:
            self._set.observe("consumers_lag_seconds", event.lag, consumer)
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
            case PipelineFault(consumer):
                self._set.count("consumers_pipeline_faults_total", consumer)
            case Throttled(consumer, event_type):
                self._set.count("consumers_throttles_total", consumer, self._type(consumer, event_type))

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

    def _show(self, name: str, consumer: str, value: float) -> None:
        self._set.gauge(name).labels(consumer).set(value)

    def _type(self, consumer: str, event_type: str) -> str:
        """A label of its own for the first 50 types of each consumer: messages may say what they want."""
        return self._types[consumer](event_type)

    def _count_failure(self, name: str, consumer: str, reason: str) -> None:
        self._set.count(name, consumer, self._codes[consumer](reason))
