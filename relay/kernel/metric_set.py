"""Metrics of a table of definitions, on a registry of their own. Loads prometheus-client, and with it a web server."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from relay.kernel.metric import Definition, Kind

# What `generate_latest` writes.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricSet:
    """Every metric of the table, by its name."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.registry = CollectorRegistry()
        self._definitions = definitions
        self._counters = {name: self._counter(name) for name in self._names(Kind.COUNTER)}
        self._histograms = {name: self._histogram(name) for name in self._names(Kind.HISTOGRAM)}
        self._gauges: dict[str, Gauge] = {}

    def render(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(_WithoutCreationTimes(self.registry))

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Raise a counter."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into a histogram."""
        histogram = self._histograms[name]
        (histogram.labels(*labels) if labels else histogram).observe(value)

    def gauge(self, name: str) -> Gauge:
        """Made when a value is known: a figure that nobody could read is no 0."""
        if name not in self._gauges:
            metric = self._definitions[name]
            self._gauges[name] = Gauge(name, metric.meaning, metric.labels, registry=self.registry)
        return self._gauges[name]

    def forget(self, name: str) -> None:
        """Take a gauge away."""
        gauge = self._gauges.pop(name, None)
        if gauge is not None:
            self.registry.unregister(gauge)

    def forget_series(self, name: str, *labels: str) -> None:
        """Take one series of a gauge away, where it is."""
        gauge = self._gauges.get(name)
        if gauge is not None:
            with suppress(KeyError):  # of older libraries, where it is not
                gauge.remove(*labels)

    def _names(self, kind: Kind) -> tuple[str, ...]:
        return tuple(name for name, metric in self._definitions.items() if metric.kind is kind)

    def _counter(self, name: str) -> Counter:
        metric = self._definitions[name]
        return Counter(name, metric.meaning, metric.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        metric = self._definitions[name]
        return Histogram(name, metric.meaning, metric.labels, registry=self.registry, buckets=metric.buckets)


class _WithoutCreationTimes(Collector):
    """The registry without the time at which each series began, which the library adds to the text format."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Every metric, shortened."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
