"""What the audit makes of one message, and of its own figures."""

from dataclasses import replace
from typing import Any

import pytest

from relay.brokers.pubsub_reader import Received
from relay.errors import ConfigurationError
from relay.operate.audit import FAULTS, AuditReport, _names_of, arrival_of
from relay.operate.audit_words import verdict

EVENT_ID = "019a0000-0000-7000-8000-00000000abcd"
CLEAN = AuditReport(
    subscription="projects/p/subscriptions/s",
    topic="projects/p/topics/t",
    ordered=True,
    expected=3,
    seen=3,
    messages=3,
    lost=0,
    unknown=0,
    undecodable=0,
    misrouted=0,
    mismatched=0,
    inversions=0,
    duplicates=0,
    redelivered=0,
    pending=0,
    failed=0,
    discarded=0,
    forgotten=0,
    early=0,
    late=0,
    examples={},
)
NOTHING = {"expected": 0, "seen": 0, "messages": 0}


def having(**fields: Any) -> AuditReport:
    """A clean report, but for these fields."""
    return replace(CLEAN, **fields)


@pytest.mark.parametrize("name", [*FAULTS, "inversions"])
def test_one_fault_of_any_kind_fails(name: str) -> None:
    """One is enough, and the verdict names it with its first ids."""
    report = having(examples={name: (EVENT_ID,)}, **{name: 1})
    assert report.faults == {name: 1}
    assert not report.passed
    assert report.as_json()["passed"] is False
    assert EVENT_ID in verdict(report)
    assert verdict(report).splitlines()[-1] == f"failed: 1 {name}"


@pytest.mark.parametrize("name", ["duplicates", "redelivered", "pending", "failed", "discarded", "early", "late"])
def test_what_is_worth_knowing_does_not_fail(name: str) -> None:
    """At least once allows repetition, and what is not published yet is not missing yet."""
    report = having(**{name: 1})
    assert report.passed
    assert report.as_json()["passed"] is True


@pytest.mark.parametrize(("failed", "words"), [(1, "1 row"), (3_000, "3,000 rows")])
@pytest.mark.parametrize("fields", [{}, {"lost": 1}, {"ordered": False, "inversions": 1}, NOTHING])
def test_rows_that_failed_are_in_every_verdict(fields: dict[str, Any], failed: int, words: str) -> None:
    """Whoever reads the last line alone learns that something will never arrive."""
    last = verdict(having(failed=failed, **fields)).splitlines()[-1]

    assert (
        last == f"{verdict(having(**fields)).splitlines()[-1]}; {words} failed and will not be published unless retried"
    )


def test_a_list_that_is_cut_says_by_how_much() -> None:
    """Five ids are not all of them."""
    ids = tuple("abcde")

    cut = verdict(having(expected=2_000, lost=1_005, examples={"lost": ids}))
    whole = verdict(having(lost=5, examples={"lost": ids}))

    assert [line.strip() for line in cut.splitlines() if line.startswith(" ")] == [*ids, "and 1,000 more"]
    assert [line.strip() for line in whole.splitlines() if line.startswith(" ")] == [*ids]


def test_where_everything_is_lost_the_audit_may_be_the_cause() -> None:
    """The second audit of a subscription finds it empty; one loss among many has no such excuse."""
    all_lost = verdict(having(expected=3, lost=3, seen=0, messages=0)).splitlines()

    assert "an audit empties the subscription" in all_lost[-2]
    assert all_lost[-1] == "failed: 3 lost"
    assert "empties" not in verdict(having(expected=3, lost=2))
    assert "empties" not in verdict(CLEAN)


def test_faults_outweigh_emptiness() -> None:
    """Nothing expected and something undecodable is a failure with a name."""
    report = having(expected=0, seen=0, messages=1, undecodable=1)
    assert not report.empty
    assert not report.passed


def test_order_is_judged_where_it_was_promised() -> None:
    """Inversions on a subscription without ordering are told, not blamed."""
    report = having(ordered=False, inversions=2)
    assert report.passed
    assert "order was not promised" in verdict(report)


@pytest.mark.parametrize("count", ["expected", "messages"])
def test_either_side_is_something_to_compare(count: str) -> None:
    """Only an audit of no rows and no messages is empty."""
    nothing = having(**NOTHING)
    assert nothing.empty
    assert not nothing.passed
    assert not having(**{**NOTHING, count: 1}).empty


@pytest.mark.parametrize("event_id", ["", "x", EVENT_ID.upper(), f"{{{EVENT_ID}}}", f"{EVENT_ID}\n", EVENT_ID[:-1]])
def test_an_event_id_has_one_spelling(event_id: str) -> None:
    """Consumers compare event ids as texts, so any other spelling is none."""
    assert arrival_of(Received("a", "m", "", {"event_id": EVENT_ID}, b"")).event_id == EVENT_ID
    assert arrival_of(Received("a", "m", "", {"event_id": event_id}, b"")).event_id is None


def test_rows_may_call_a_topic_by_either_name() -> None:
    """The short name means the project that the relay publishes to, and no other."""
    assert _names_of("projects/p/topics/t", "p") == ["projects/p/topics/t", "t"]
    assert _names_of("projects/p/topics/t", "other") == ["projects/p/topics/t"]


def test_a_deleted_topic_has_no_rows() -> None:
    """What belongs to a topic that is gone cannot be told."""
    with pytest.raises(ConfigurationError, match="_deleted-topic_"):
        _names_of("_deleted-topic_", "p")
