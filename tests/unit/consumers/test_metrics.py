"""What is counted of consumers, and that nothing of it grows with what messages say."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from consumers.backlog import InboxStats, Queue
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
    ProgressMade,
    ResultUnkept,
    RevisionRequeued,
    ScratchLeft,
    SettleFailed,
    SourceAway,
    SourceBack,
    StageEnded,
    StartWarning,
    StoreAway,
    StoreBack,
    Stored,
    Throttled,
    TicketsAsked,
    UpkeepFailed,
)
from consumers.metrics import DEFINITIONS, MOST_VALUES, Metrics
from consumers.received import Received
from relay.errors import BrokerError
from tests.support.job_events import EVENTS as OF_JOBS

REFUSED = BrokerError("UNAVAILABLE", "away")
STARTED = ConsumerStarted("billing", "orders", "claim", "dead", ("*",), 50)
WITH_INBOX = ConsumerStarted("billing", "orders", "inbox", "", ("*",), 10)
QUEUE = Queue(due=7, oldest_due_seconds=2.5, processing=4, sent=2, failed=3)
STATS = ConsumerStats("billing", "orders", {"done": 3}, 1, 2, 3, 6, 600, 1.5, True, True, 60.0)  # noqa: FBT003


def event(event_type: str = "order.paid") -> Received[Any]:
    """An event of this type."""
    now = datetime.now(UTC)
    return Received(event_id=UUID(int=7), event_type=event_type, version=1, occurred_at=now, data=None, attributes={})


def settled(fate: Fate, event_type: str = "order.paid", attempt: int = 1, code: str = "") -> DeliverySettled:
    """A delivery that came to this end."""
    return DeliverySettled("billing", event(event_type), fate, attempt, 0.02, 1.5, code)


def stats_with(queue: Queue | None) -> ConsumerStats:
    """A look at a consumer with an inbox."""
    return replace(STATS, inbox=InboxStats(True, 3, {}, 2, {"ready": 3}, 0, 0, 9, queue))  # noqa: FBT003


# One of each kind.
ALL: list[object] = [
    STARTED,
    STATS,
    *OF_JOBS,
    *map(settled, Fate),
    StoreAway("billing", REFUSED, 1.0),
    SourceAway("billing", "orders", REFUSED, 1.0),
    SettleFailed("billing", "orders", "extend", 5, REFUSED),
    DeliveriesLost("billing", "orders", 4, "too late"),
    DeadLetterFailed("billing", "dead", event(), REFUSED, 10.0),
    HandlerOverdue("billing", event(), 45.0),
    CompletionUnwritten("billing", event(), REFUSED),
    ResultUnkept("billing", event(), "set", REFUSED),
    OutcomeIgnored("billing", event(), "Done"),
    OutcomeIgnored("billing", event(), "Done", completed=True),
    PipelineFault("billing", event(), REFUSED, 5.0),
    StageEnded("billing", event(), "upload", 1.5),
    StageEnded("billing", event(), "upload", 0.5, "503"),
    ProgressMade("billing", event(), 40.0),
    ArtifactUploaded("billing", event(), "clips/42.mp4", 7, 0.5),
    ArtifactReused("billing", event(), "clips/42.mp4", 7),
    NoteLost("billing", event(), "stage", REFUSED),
    ScratchLeft("billing", event(), OSError()),
    StartWarning("billing", "careful"),
    Throttled("billing", "order.paid", 30.0),
    Stored("billing", 8, 2, 0.1),
    ClaimMade("billing", "ready", 10, 7),
    ClaimMade("billing", "key", 5, 3, conflicts=2),
    Heartbeat("billing", 10),
    HeartbeatFailed("billing", 10, REFUSED),
    LeaseRecovered("billing", 7, "e", "order.paid", 1, "host:1:ab", alone=True),
    LeaseRecovered("billing", 8, "f", "order.paid", 0, "host:1:ab", alone=False),
    InboxAway("billing", "claim", REFUSED, 1.0),
    RevisionRequeued("billing", "order.*", 2, 5, 0.5),
    InboxCleaned("billing", 6, 0.5),
    UpkeepFailed("billing", "inbox_cleaning", REFUSED),
    TicketsAsked("billing", "push.due", 4, {"confirmed": 3, "open": 1}, 0.1),
    ConfirmFailed("billing", "push.due", 4, REFUSED, 30.0),
]


@pytest.fixture
def metrics() -> Metrics:
    """Nothing has happened yet."""
    return Metrics()


def values(metrics: Metrics) -> dict[str, float]:
    """Every sample, as its line names it, without the consumer where that is billing."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        sample.name.removeprefix("consumers_")
        + "".join(
            f"{{{value}}}" for name, value in sorted(sample.labels.items()) if (name, value) != BILLING
        ): sample.value
        for family in families
        for sample in family.samples
    }


BILLING = ("consumer", "billing")


def test_a_delivery_is_counted_by_its_type_and_its_fate(metrics: Metrics) -> None:
    """And timed where a handler ran."""
    for each in (Fate.DONE, Fate.DONE, Fate.DUPLICATE, Fate.BUSY):
        metrics(settled(each))
    metrics(settled(Fate.RETRIED, attempt=2, code="503"))

    found = values(metrics)
    assert found["deliveries_total{order.paid}{done}"] == 2
    assert found["deliveries_total{order.paid}{duplicate}"] == 1
    assert found["handler_seconds_count{order.paid}"] == 3
    assert (found["handler_seconds_bucket{order.paid}{0.01}"], found["handler_seconds_bucket{order.paid}{0.025}"]) == (
        0,
        3,
    )
    assert found["failures_total{503}"] == 1


def test_the_lag_is_that_of_events_that_were_done_at_once(metrics: Metrics) -> None:
    """A second attempt is late because of the first, a duplicate because it is one."""
    for each in (settled(Fate.DONE), settled(Fate.DONE, attempt=2), settled(Fate.DUPLICATE), settled(Fate.RETRIED)):
        metrics(each)
    metrics(DeliverySettled("billing", event(), Fate.DONE, 1, 0.02, None))

    found = values(metrics)
    assert (found["lag_seconds_count"], found["lag_seconds_sum"]) == (1, 1.5)


def test_what_goes_wrong_is_counted_by_its_reason(metrics: Metrics) -> None:
    """Each where it happened."""
    for each in ALL:
        metrics(each)

    found = values(metrics)
    assert found["store_failures_total{UNAVAILABLE}"] == 1
    assert found["source_failures_total{UNAVAILABLE}"] == 1
    assert found["dead_letter_failures_total{UNAVAILABLE}"] == 1
    assert found["unsettled_messages_total{extend}"] == 5
    assert found["lost_messages_total"] == 4
    assert found["overdue_handlers_total{order.paid}"] == 1
    assert found["unwritten_completions_total"] == 1
    assert found["unkept_results_total{order.paid}"] == 1
    assert found["pipeline_faults_total"] == 1
    assert found["throttles_total{order.paid}"] == 1
    assert found["failures_total{LEASE_LOST}"] == 1
    assert found["retries_total{RETRIED}"] == 1
    assert (found["ignored_outcomes_total{lease_lost}"], found["ignored_outcomes_total{completed}"]) == (1, 1)
    assert found["heartbeat_failures_total{UNAVAILABLE}"] == 1
    assert found["inbox_failures_total{UNAVAILABLE}{claim}"] == 1


def test_stages_and_artifacts_are_counted(metrics: Metrics) -> None:
    """Each stage by its name and where it failed by its code, artifacts by the type of their event."""
    for each in ALL:
        metrics(each)
    for number in range(MOST_VALUES + 20):
        metrics(StageEnded("billing", event(), f"s{number}", 0.1))

    found = values(metrics)
    assert (found["stage_seconds_count{upload}"], found["stage_seconds_sum{upload}"]) == (2, 2.0)
    assert found["stage_failures_total{503}{upload}"] == 1
    assert found["stage_seconds_count{other}"] == 21
    assert found["uploaded_artifacts_total{order.paid}"] == 1
    assert found["idempotent_skips_total{order.paid}"] == 1
    assert found["lost_notes_total{UNAVAILABLE}"] == 1
    assert found["left_scratch_directories_total"] == 1


def test_what_is_available_is_shown_at_once(metrics: Metrics) -> None:
    """From the start on; before it nobody knows."""
    assert values(metrics) == {}
    metrics(STARTED)
    metrics(StoreAway("billing", REFUSED, 1.0))
    metrics(SourceAway("billing", "orders", REFUSED, 1.0))
    found = values(metrics)
    assert (found["receiving"], found["store_available"], found["source_available"]) == (1, 0, 0)

    metrics(StoreBack("billing", 1.0))
    metrics(SourceBack("billing", "orders", 1.0))
    metrics(ConsumerStopped("billing", 1.0, 0, ()))
    found = values(metrics)
    assert (found["receiving"], found["store_available"], found["source_available"]) == (0, 1, 1)


def test_an_inbox_is_counted_by_what_came_and_what_was_claimed(metrics: Metrics) -> None:
    """Leases by why they were taken from their owners."""
    for each in ALL:
        metrics(each)

    found = values(metrics)
    assert (found["arrivals_total{new}"], found["arrivals_total{duplicate}"]) == (8, 2)
    assert (found["claims_total{ready}"], found["claims_total{key}"]) == (1, 1)
    assert (found["claimed_deliveries_total{ready}"], found["claimed_deliveries_total{key}"]) == (7, 3)
    assert found["claim_conflicts_total"] == 2
    assert found["heartbeats_total"] == 1
    assert (found["recovered_total{alone}"], found["recovered_total{beside_others}"]) == (1, 1)
    assert (found["requeued_total"], found["cleaned_total"]) == (5, 6)
    assert [found[name] for name in found if name.startswith("upkeep_failures_total{")] == [1]


def test_an_inbox_is_available_for_each_operation(metrics: Metrics) -> None:
    """At once; a consumer without one has no such series."""
    metrics(STARTED)
    assert not [name for name in values(metrics) if name.startswith("inbox_available")]
    metrics(WITH_INBOX)
    metrics(InboxAway("billing", "receive", REFUSED, 1.0))
    found = values(metrics)
    assert (found["inbox_available{receive}"], found["inbox_available{claim}"]) == (0, 1)

    metrics(InboxBack("billing", "receive", 2.0))
    assert values(metrics)["inbox_available{receive}"] == 1


def test_the_queue_is_shown_while_it_is_known(metrics: Metrics) -> None:
    """What nobody could read is neither 0 nor what it was."""
    metrics(stats_with(None))
    assert values(metrics)["leases"] == 9
    metrics(stats_with(QUEUE))
    metrics(replace(stats_with(QUEUE), consumer="shipping"))
    assert {
        name: value for name, value in values(metrics).items() if name.startswith("queue_") and "{" not in name
    } == {
        "queue_due": 7,
        "queue_oldest_due_seconds": 2.5,
        "queue_processing": 4,
        "queue_sent": 2,
        "queue_failed": 3,
    }

    metrics(stats_with(None))
    assert {name for name in values(metrics) if name.startswith("queue_")} == {
        f"queue_{name}{{shipping}}" for name in ("due", "oldest_due_seconds", "processing", "sent", "failed")
    }


def test_verdicts_on_sends_are_counted_by_type(metrics: Metrics) -> None:
    """And failures to ask, by their code."""
    metrics(TicketsAsked("billing", "push.due", 4, {"confirmed": 3, "open": 1}, 0.1))
    metrics(TicketsAsked("billing", "push.due", 1, {"confirmed": 1}, 0.1))
    metrics(ConfirmFailed("billing", "push.due", 4, OSError("gone"), 30.0))

    found = values(metrics)
    assert found["confirmations_total{push.due}{confirmed}"] == 4
    assert found["confirmations_total{push.due}{open}"] == 1
    assert found["confirm_failures_total{OSError}"] == 1


def test_what_is_held_is_as_of_the_last_look(metrics: Metrics) -> None:
    """Of each consumer."""
    metrics(STATS)

    found = values(metrics)
    assert {name: found[name] for name in ("running_handlers", "waiting_deliveries", "resting_deliveries")} == {
        "running_handlers": 1,
        "waiting_deliveries": 2,
        "resting_deliveries": 3,
    }
    assert (found["held_messages"], found["held_bytes"], found["oldest_running_seconds"]) == (6, 600, 1.5)


def test_no_message_makes_the_number_of_series_grow(metrics: Metrics) -> None:
    """After fifty types, and fifty codes, all further ones are one; another consumer has its own fifty."""
    for number in range(MOST_VALUES + 20):
        metrics(settled(Fate.RETRIED, f"t{number}", code=f"c{number}"))
    other = settled(Fate.DONE, "late")
    metrics(DeliverySettled("shipping", other.subject, Fate.DONE, 1, 0.1, 1.0))

    found = values(metrics)
    assert len([name for name in found if name.startswith("deliveries_total")]) == MOST_VALUES + 2
    assert found["deliveries_total{other}{retried}"] == 20
    assert found["failures_total{other}"] == 20
    assert found["deliveries_total{shipping}{late}{done}"] == 1


def test_every_metric_is_made_by_something(metrics: Metrics) -> None:
    """And all of them are in the table; nothing is in the registry that everybody shares."""
    for each in ALL:
        metrics(each)
    metrics(stats_with(QUEUE))

    made = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
    assert made == {name.removesuffix("_total") for name in DEFINITIONS}
    assert b"consumers_" not in generate_latest(REGISTRY)
    assert {family.name for family in metrics.registry.collect()} == made
