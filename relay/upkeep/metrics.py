"""Metrics of jobs: what they are, and how they are counted, in every program that runs them. Loads no Prometheus."""

from collections import defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from relay.kernel.metric import Bounded, Definition, Kind
from relay.upkeep.events import JobEvent, RunBegan, RunDeaf, RunEnded, RunFault, RunSkipped, RunUnrecorded, Status

if TYPE_CHECKING:
    from relay.kernel.metric_set import MetricSet

_SECONDS = (0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)
SKIPPED = "skipped"

DEFINITIONS = MappingProxyType(
    {
        "relay_job_runs_total": Definition(
            Kind.COUNTER,
            "Runs of a job in this process, by how they ended; `skipped` are slots that came while one was at work.",
            ("job", "status"),
        ),
        "relay_job_seconds": Definition(
            Kind.HISTOGRAM, "How long a run of a job took, however it ended.", ("job",), _SECONDS
        ),
        "relay_job_items_total": Definition(
            Kind.COUNTER, "What runs of a job have counted with `run.count`.", ("job", "counter")
        ),
        "relay_job_faults_total": Definition(
            Kind.COUNTER, "What went wrong in runs of a job and did not end them, `run.fault`.", ("job",)
        ),
        "relay_job_last_success_timestamp_seconds": Definition(
            Kind.GAUGE,
            "When a run of the job was last done in this process, in seconds since 1970; absent before the first.",
            ("job",),
        ),
    }
)


class JobMetrics:
    """Counts what happens to jobs. `now` is the time of day, in seconds since 1970."""

    def __init__(self, metrics: "MetricSet", now: Callable[[], float]) -> None:
        self._set = metrics
        self._now = now
        self._job = Bounded()
        self._counters: defaultdict[str, Bounded] = defaultdict(Bounded)

    def __call__(self, event: object) -> None:
        """Count the event, if it is one of a job."""
        if isinstance(event, JobEvent):
            self._count(event)

    def _count(self, event: JobEvent) -> None:
        job = self._job(event.job)
        match event:
            case RunEnded():
                self._ended(event, job)
            case RunSkipped():
                self._set.count("relay_job_runs_total", job, SKIPPED)
            case RunFault():
                self._set.count("relay_job_faults_total", job)
            case RunBegan() | RunDeaf() | RunUnrecorded():
                pass  # counted when it ends; and no part of the job
            case _:
                assert_never(event)

    def _ended(self, event: RunEnded, job: str) -> None:
        self._set.count("relay_job_runs_total", job, event.status.value)
        self._set.observe("relay_job_seconds", event.seconds, job)
        for name, count in event.counters.items():
            # A counter of Prometheus does not fall.
            if count > 0:
                self._set.count("relay_job_items_total", job, self._counters[job](name), by=count)
        if event.status is Status.DONE:
            self._set.gauge("relay_job_last_success_timestamp_seconds").labels(job).set(self._now())
