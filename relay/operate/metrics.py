"""Prometheus metrics, counted from the same events as the log lines, on a registry of their own."""

from collections.abc import Callable
from platform import python_version
from types import MappingProxyType
from typing import assert_never

from prometheus_client import ProcessCollector

from relay.kernel.failure import code
from relay.kernel.metric import MOST_VALUES, OTHER, Bounded, Definition, Kind, markdown
from relay.kernel.metric_set import CONTENT_TYPE, MetricSet
from relay.kernel.observe import PassFailed, PassFinished, PassSkipped
from relay.operate.events import Reconnected
from relay.operate.health import Judge, State
from relay.operate.stats import RelayStats
from relay.outbox.events import ListenConnected, ListenLost
from relay.publisher.events import (
    BatchSettled,
    RequestFailed,
    RowFailed,
    RowRetried,
    TopicClosed,
    TopicOpened,
    TopicProbed,
)
from relay.upkeep import metrics as jobs

__all__ = ["CONTENT_TYPE", "DEFINITIONS", "MOST_VALUES", "Metrics", "table"]

_BATCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0)
_PASS_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 90.0)

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

DEFINITIONS = MappingProxyType(
    {
        "relay_rows_claimed_total": Definition(_COUNTER, "Rows claimed by batches that were committed."),
        "relay_rows_published_total": Definition(_COUNTER, "Rows published and marked so.", ("topic",)),
        "relay_rows_retried_total": Definition(
            _COUNTER, "Failures that were a row's own: it lost an attempt and waits for the next.", ("topic",)
        ),
        "relay_rows_failed_total": Definition(
            _COUNTER, "Rows that failed for good and are kept for inspection.", ("topic", "reason")
        ),
        "relay_batches_total": Definition(_COUNTER, "Batches that were committed."),
        "relay_batch_bytes_total": Definition(_COUNTER, "Message bytes of the batches that were committed."),
        "relay_batch_seconds": Definition(
            _HISTOGRAM, "How long a committed batch took, from its claim to its commit.", buckets=_BATCH_SECONDS
        ),
        "relay_requests_failed_total": Definition(
            _COUNTER, "Requests that the broker did not take, by its own name for the reason.", ("code",)
        ),
        "relay_topic_open": Definition(
            _GAUGE,
            "1 while the topic takes nothing and is left alone between probes; of `other`, how many.",
            ("topic",),
        ),
        "relay_topic_openings_total": Definition(_COUNTER, "How often the topic began to take nothing.", ("topic",)),
        "relay_topic_probes_total": Definition(_COUNTER, "Probes of a topic that were in vain.", ("topic",)),
        "relay_passes_total": Definition(
            _COUNTER,
            "Passes of a runner: `finished`, `failed`, or `skipped` as one was still busy.",
            ("runner", "outcome"),
        ),
        "relay_pass_seconds": Definition(_HISTOGRAM, "How long a pass of a runner took.", ("runner",), _PASS_SECONDS),
        "relay_reconnects_total": Definition(_COUNTER, "Connections to the outbox after the first one."),
        "relay_listen_connected": Definition(
            _GAUGE,
            "1 while the relay is told of new events, 0 while it is not and polls; absent before the first attempt has "
            "ended, and where RELAY_NOTIFY is off.",
        ),
        "relay_due_rows": Definition(
            _GAUGE, "Rows that could be published now; at least so many with over 10,000 keys held up."
        ),
        "relay_oldest_due_seconds": Definition(_GAUGE, "How long the oldest of them has been due; 0 without any."),
        "relay_scheduled_rows": Definition(_GAUGE, "Rows without an ordering_key whose time has not come yet."),
        "relay_ordered_rows": Definition(
            _GAUGE, "Pending rows with an ordering_key: due, or waiting for a row of their key."
        ),
        "relay_retrying_rows": Definition(_GAUGE, "Rows that have failed and wait for another attempt."),
        "relay_failed_rows": Definition(_GAUGE, "Rows that failed for good."),
        "relay_blocked_keys": Definition(_GAUGE, "Ordering keys that wait behind a failed row."),
        "relay_rows_behind_blocked_keys": Definition(_GAUGE, "Pending rows that wait with them."),
        "relay_stats_timestamp_seconds": Definition(
            _GAUGE, "When the eight above were read last, in seconds since 1970; they are absent while they cannot be."
        ),
        **jobs.DEFINITIONS,
        "relay_ready": Definition(_GAUGE, "What /readyz says: 1 ready, 0.5 degraded, 0 not ready."),
        "relay_healthy": Definition(_GAUGE, "What /healthz says: 1 the pipeline moves, 0 it is stuck."),
        "relay_build_info": Definition(
            _GAUGE, "Always 1; its labels say what runs.", ("version", "schema_version", "python")
        ),
    }
)

_STATES = MappingProxyType({State.OK: 1.0, State.DEGRADED: 0.5, State.FAILED: 0.0})


def table() -> str:
    """Every metric, as a Markdown table."""
    return markdown(DEFINITIONS)


class Metrics:
    """Listens to what happens and counts it. `now` is the time of day, in seconds since 1970."""

    def __init__(
        self, version: str, schema_version: int, now: Callable[[], float], health: Judge | None = None
    ) -> None:
        self._set = MetricSet(DEFINITIONS)
        self._now = now
        self._jobs = jobs.JobMetrics(self._set, now)
        self._topic, self._code = Bounded(), Bounded()
        self._open: set[str] = set()
        self._set.gauge("relay_build_info").labels(version, str(schema_version), python_version()).set(1)
        if health is not None:
            self._set.gauge("relay_ready").set_function(lambda: _STATES[health.ready().state])
            self._set.gauge("relay_healthy").set_function(lambda: _STATES[health.healthy().state])
        ProcessCollector(registry=self._set.registry)

    def render(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return self._set.render()

    def __call__(self, event: object) -> None:
        """Count the event."""
        match event:
            case BatchSettled():
                self._batch(event)
            case RequestFailed():
                self._set.count("relay_requests_failed_total", self._code(code(event.error)))
            case RowRetried():
                self._set.count("relay_rows_retried_total", self._topic(event.topic))
            case RowFailed():
                self._set.count("relay_rows_failed_total", self._topic(event.topic), event.reason)
            case TopicOpened() | TopicProbed() | TopicClosed():
                self._circuit(event)
            case PassFinished() | PassFailed() | PassSkipped():
                self._pass(event)
            case Reconnected():
                self._set.count("relay_reconnects_total")
            case ListenConnected() | ListenLost():
                self._set.gauge("relay_listen_connected").set(isinstance(event, ListenConnected))
            case RelayStats():
                self._stats(event)
            case _:
                self._jobs(event)

    def _batch(self, event: BatchSettled) -> None:
        self._set.count("relay_batches_total")
        self._set.count("relay_rows_claimed_total", by=event.claimed)
        self._set.count("relay_batch_bytes_total", by=event.size_bytes)
        self._set.observe("relay_batch_seconds", event.seconds)
        for topic, taken in event.taken.items():
            self._set.count("relay_rows_published_total", self._topic(topic), by=len(taken))

    def _circuit(self, event: TopicOpened | TopicProbed | TopicClosed) -> None:
        topic = self._topic(event.topic)
        match event:
            case TopicOpened():
                self._set.count("relay_topic_openings_total", topic)
                self._open.add(event.topic)
            case TopicProbed():
                self._set.count("relay_topic_probes_total", topic)
                self._open.add(event.topic)
            case TopicClosed():
                self._open.discard(event.topic)
            case _:
                assert_never(event)
        among = [event.topic] if topic != OTHER else [name for name in self._open if self._topic(name) == OTHER]
        self._set.gauge("relay_topic_open").labels(topic).set(sum(name in self._open for name in among))

    def _pass(self, event: PassFinished | PassFailed | PassSkipped) -> None:
        match event:
            case PassFinished():
                outcome = "finished"
            case PassFailed():
                outcome = "failed"
            case PassSkipped():
                outcome = "skipped"
            case _:
                assert_never(event)
        self._set.count("relay_passes_total", event.runner, outcome)
        if not isinstance(event, PassSkipped):
            self._set.observe("relay_pass_seconds", event.seconds, event.runner)

    def _stats(self, event: RelayStats) -> None:
        figures = {
            "relay_due_rows": event.due,
            "relay_oldest_due_seconds": event.oldest_due_seconds,
            "relay_scheduled_rows": event.scheduled,
            "relay_ordered_rows": event.ordered,
            "relay_retrying_rows": event.retrying,
            "relay_failed_rows": event.failed,
            "relay_blocked_keys": event.blocked_keys,
            "relay_rows_behind_blocked_keys": event.behind_blocked,
        }
        for name, figure in figures.items():
            if figure is None:
                self._set.forget(name)
            else:
                self._set.gauge(name).set(figure)
        if event.error is None:
            self._set.gauge("relay_stats_timestamp_seconds").set(self._now())
