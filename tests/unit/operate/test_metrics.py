"""What is counted, and that nothing of it grows with what rows say."""

import re
from collections import Counter
from typing import Any

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from relay.errors import BrokerError
from relay.kernel.failure import code
from relay.kernel.observe import PassFailed, PassFinished, PassSkipped, ShutdownBegan
from relay.kernel.runner import Report
from relay.operate.events import Reconnected
from relay.operate.health import Health
from relay.operate.metrics import DEFINITIONS, MOST_VALUES, Metrics, table
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
from tests.support.commands import ROOT
from tests.support.job_events import EVENTS as OF_JOBS

ROW: Any = None  # nothing of it is looked at
REFUSED = BrokerError("UNAVAILABLE", "away")


@pytest.fixture
def metrics() -> Metrics:
    """Nothing has happened yet."""
    return Metrics("1.2.3", 4, lambda: 1_700_000_000.0)


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample, as its line names it, but those of the process."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        sample.name + "".join(f"{{{value}}}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("relay_")
    }


def settled(*topics: str) -> BatchSettled:
    """A batch of one row for each topic, and one row that failed."""
    taken = {topic: [(ROW, "m")] * count for topic, count in Counter(topics).items()}
    return BatchSettled(len(topics) + 1, len(topics), 0, 1, 500, 0.02, taken)


def stats(due: int | None = 3, error: str | None = None) -> RelayStats:
    """What waits, or that it cannot be looked at."""
    known = error is None
    return RelayStats(
        due=due,
        oldest_due_seconds=1.5 if known else None,
        scheduled=4 if known else None,
        ordered=2 if known else None,
        retrying=5 if known else None,
        failed=6 if known else None,
        blocked_keys=1 if known else None,
        behind_blocked=8 if known else None,
        count_limit=100,
        error=error,
        seconds=60,
        claimed=0,
        published=0,
        retried=0,
        rows_failed=0,
        batches=0,
        published_per_second=0,
        failure_rate=0,
        passes=0,
        passes_failed=0,
        ms_per_pass=0,
    )


def test_a_batch_is_counted_by_topic(metrics: Metrics) -> None:
    """What the broker took, where it went, how long it took."""
    metrics(settled("a", "a", "b"))
    metrics(settled("a"))

    found = values(metrics)
    assert found["relay_rows_published_total{a}"] == 3
    assert found["relay_rows_published_total{b}"] == 1
    assert found["relay_rows_claimed_total"] == 6
    assert found["relay_batches_total"] == 2
    assert found["relay_batch_bytes_total"] == 1_000
    assert found["relay_batch_seconds_count"] == 2
    assert found["relay_batch_seconds_bucket{0.025}"] == 2
    assert found["relay_batch_seconds_bucket{0.01}"] == 0


def test_what_goes_wrong_is_counted_by_its_reason(metrics: Metrics) -> None:
    """Rows, requests and connections."""
    metrics(RowRetried(ROW, "a", 1, REFUSED, 1, 5.0))
    metrics(RowFailed(ROW, "a", 1, REFUSED, 25, "max_attempts", blocks_key=False))
    metrics(RequestFailed("a", [ROW], REFUSED))
    metrics(RequestFailed("a", [ROW], RuntimeError("an adapter's")))
    metrics(Reconnected("db"))

    found = values(metrics)
    assert found["relay_rows_retried_total{a}"] == 1
    assert found["relay_rows_failed_total{max_attempts}{a}"] == 1
    assert found["relay_requests_failed_total{UNAVAILABLE}"] == 1
    assert found["relay_requests_failed_total{RuntimeError}"] == 1
    assert found["relay_reconnects_total"] == 1


def test_whether_it_is_told_of_new_events_is_shown_once_it_is_known(metrics: Metrics) -> None:
    """Where nobody listens there is no such figure."""
    assert "relay_listen_connected" not in values(metrics)
    metrics(ListenConnected("db"))
    assert values(metrics)["relay_listen_connected"] == 1
    metrics(ListenLost(REFUSED, 0.5))
    assert values(metrics)["relay_listen_connected"] == 0


class Odd(Exception):  # noqa: N818 -- as an adapter may name its own
    """As gRPC's errors: its code is asked for, and is no text."""

    def code(self) -> object:
        """Something new each time."""
        return object()


def test_an_error_has_the_code_of_its_log_line(metrics: Metrics) -> None:
    """One label for errors alike, whatever their `code` is."""
    for _ in range(3):
        metrics(RequestFailed("a", [ROW], Odd("no")))

    codes = {name: count for name, count in values(metrics).items() if name.startswith("relay_requests_failed_total")}
    assert codes == {f"relay_requests_failed_total{{{code(Odd('no'))}}}": 3}


def test_a_topic_is_open_until_it_is_closed(metrics: Metrics) -> None:
    """However often it opens, and however many probes are in vain."""
    metrics(TopicOpened("a", REFUSED, 0.5))
    metrics(TopicProbed("a", REFUSED, 1, 1.0))
    metrics(TopicProbed("a", REFUSED, 2, 2.0))
    found = values(metrics)
    assert (found["relay_topic_open{a}"], found["relay_topic_openings_total{a}"]) == (1, 1)
    assert found["relay_topic_probes_total{a}"] == 2

    metrics(TopicClosed("a", 3, 4.0))
    assert values(metrics)["relay_topic_open{a}"] == 0


def test_topics_beyond_the_bound_share_a_label(metrics: Metrics) -> None:
    """Topics and codes come from elsewhere: a million of them must not be a million series."""
    for number in range(MOST_VALUES + 3):
        metrics(settled(f"t{number}"))
        metrics(TopicOpened(f"t{number}", REFUSED, 0.5))
        metrics(RequestFailed("t0", [ROW], BrokerError(f"CODE_{number}", "odd")))
    metrics(TopicClosed(f"t{MOST_VALUES}", 1, 1.0))

    found = values(metrics)
    assert found["relay_rows_published_total{other}"] == 3
    assert found["relay_topic_open{other}"] == 2
    assert found["relay_requests_failed_total{other}"] == 3
    assert sum(name.startswith("relay_rows_published_total") for name in found) == MOST_VALUES + 1


def test_passes_are_counted_by_how_they_ended(metrics: Metrics) -> None:
    """For each runner by itself."""
    metrics(PassFinished("publish", Report(), 0.2))
    metrics(PassFailed("publish", RuntimeError(), 3.0))
    metrics(PassSkipped("retention"))

    found = values(metrics)
    assert found["relay_passes_total{finished}{publish}"] == 1
    assert found["relay_passes_total{failed}{publish}"] == 1
    assert found["relay_passes_total{skipped}{retention}"] == 1
    assert found["relay_pass_seconds_count{publish}"] == 2


def test_the_queue_is_shown_while_it_is_known(metrics: Metrics) -> None:
    """A figure that nobody could read is absent, and neither 0 nor an old one."""
    assert "relay_due_rows" not in values(metrics)

    metrics(stats())
    found = values(metrics)
    assert [found[f"relay_{name}"] for name in ("due_rows", "oldest_due_seconds", "scheduled_rows")] == [3, 1.5, 4]
    assert [found[f"relay_{name}"] for name in ("ordered_rows", "retrying_rows", "failed_rows")] == [2, 5, 6]
    assert (found["relay_blocked_keys"], found["relay_rows_behind_blocked_keys"]) == (1, 8)
    assert found["relay_stats_timestamp_seconds"] == 1_700_000_000

    metrics(stats(due=None, error="the database is away"))
    assert "relay_due_rows" not in values(metrics)
    assert "relay_oldest_due_seconds" not in values(metrics)

    metrics(stats(due=9))
    assert values(metrics)["relay_due_rows"] == 9


def test_the_probes_answers_are_metrics_too() -> None:
    """For platforms that scrape and do not probe; read when they are asked for."""
    health = Health(lambda: 0.0, 90, 80)
    metrics = Metrics("1", 1, lambda: 0.0, health)
    assert (values(metrics)["relay_ready"], values(metrics)["relay_healthy"]) == (0, 1)

    health(PassFinished("publish", Report(), 0.1))
    assert values(metrics)["relay_ready"] == 1


def test_the_build_is_told(metrics: Metrics) -> None:
    """Version, schema and Python."""
    (name,) = (name for name in values(metrics) if name.startswith("relay_build_info"))
    assert "{4}" in name
    assert "{1.2.3}" in name


def test_other_events_are_none_of_its_business(metrics: Metrics) -> None:
    """It hears all that happens."""
    before = values(metrics)
    metrics(ShutdownBegan("SIGTERM", 25))
    assert values(metrics) == before


def test_two_of_them_count_for_themselves_and_nothing_is_global(metrics: Metrics) -> None:
    """Programs that embed the relay keep their own registry."""
    other = Metrics("1", 1, lambda: 0.0)
    metrics(Reconnected("db"))

    assert values(other)["relay_reconnects_total"] == 0
    assert b"relay_" not in generate_latest(REGISTRY)


def test_everything_that_is_shown_is_in_the_table(metrics: Metrics) -> None:
    """And what the table has is shown, once it has happened."""
    metrics = Metrics("1", 1, lambda: 0.0, Health(lambda: 0.0, 90, 80))
    for event in (
        settled("a"),
        stats(),
        RowRetried(ROW, "a", 1, REFUSED, 1, 5.0),
        RowFailed(ROW, "a", 1, REFUSED, 1, "non_retryable", blocks_key=True),
        RequestFailed("a", [ROW], REFUSED),
        TopicOpened("a", REFUSED, 1.0),
        TopicProbed("a", REFUSED, 1, 1.0),
        PassFinished("publish", Report(), 0.1),
        ListenConnected("db"),
        *OF_JOBS,
    ):
        metrics(event)
    shown = dict(re.findall(r"# TYPE (relay_\w+) (\w+)", metrics.render().decode()))

    assert shown == {name: metric.kind.value for name, metric in DEFINITIONS.items()}
    assert [line.split("`")[1] for line in table().splitlines()[2:]] == list(DEFINITIONS)


def test_the_documentation_has_the_table() -> None:
    """Word for word."""
    assert table() in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
