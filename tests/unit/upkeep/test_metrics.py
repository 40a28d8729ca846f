"""What is counted of jobs."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from relay.kernel.metric import MOST_VALUES
from relay.kernel.metric_set import MetricSet
from relay.upkeep.events import RunEnded, Status
from relay.upkeep.metrics import DEFINITIONS, JobMetrics
from tests.support.job_events import EVENTS, SLOT, WORKER, ended


def counted(*events: object) -> dict[str, float]:
    """The samples that these leave, by name and labels."""
    metrics = MetricSet(DEFINITIONS)
    jobs = JobMetrics(metrics, lambda: 1_700.0)
    for event in events:
        jobs(event)
    return {
        f"{sample.name}{{{','.join(sample.labels.values())}}}": sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_runs_are_counted_by_how_they_ended() -> None:
    """And slots that were left out."""
    found = counted(*EVENTS)
    assert {name: value for name, value in found.items() if name.startswith("relay_job_runs_total")} == {
        f"relay_job_runs_total{{ingest,{status}}}": 1
        for status in ("done", "failed", "timed_out", "cancelled", "lost", "killed", "skipped")
    }
    assert found["relay_job_faults_total{ingest}"] == 1
    assert found["relay_job_seconds_count{ingest}"] == 6
    assert found["relay_job_items_total{rows,ingest}"] == 6 * 7


def test_the_last_success_is_that_of_a_run_that_was_done() -> None:
    """There is none before."""
    name = "relay_job_last_success_timestamp_seconds{ingest}"
    assert name not in counted(ended(Status.FAILED))
    assert counted(ended(errors=1))[name] == 1_700.0


def test_a_counter_that_a_job_has_lowered_breaks_nothing() -> None:
    """A counter of Prometheus does not fall."""
    found = counted(replace(ended(), counters={"rows": -3, "none": 0, "some": 2}))
    assert {name for name in found if name.startswith("relay_job_items_total")} == {
        "relay_job_items_total{some,ingest}"
    }


def test_what_jobs_count_does_not_make_the_number_of_series_grow() -> None:
    """A counter's name may come from data."""
    names = {f"c{number}": 1 for number in range(MOST_VALUES + 20)}
    found = counted(RunEnded("ingest", SLOT, WORKER, Status.DONE, names, 0, 1.0))
    assert found["relay_job_items_total{other,ingest}"] == 20
    assert len([name for name in found if name.startswith("relay_job_items_total")]) == MOST_VALUES + 1
