"""A dead letter as an operator sees it, and which ones an operator means."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consumers.dead_letter import FOREIGN, Choice, DeadLetter
from consumers.dead_letters import attributes_of
from consumers.delivery import Delivery
from consumers.outcome import Dead

EVENT = UUID("0194b6a0-0000-7000-8000-000000000001")


def body(event_type: str = "order.paid") -> bytes:
    """An envelope."""
    return json.dumps(
        {
            "event_id": str(EVENT),
            "event_type": event_type,
            "version": 1,
            "occurred_at": "2025-01-31T12:00:00Z",
            "actor": None,
            "data": {"card": "4111"},
        }
    ).encode()


def letter(content: bytes | None = None, code: str = "NO_ACCOUNT", **attributes: str) -> DeadLetter:
    """A dead letter of billing."""
    sent = attributes_of(
        Delivery(body=b"", attributes={"sequence": "7", **attributes}, ordering_key="k"),
        Dead("no such account", code),
        consumer="billing",
        subscription="billing-orders",
        attempts=3,
        now=datetime(2025, 1, 31, 12, tzinfo=UTC),
    )
    return DeadLetter.read("1", sent, body() if content is None else content)


def test_a_dead_letter_tells_what_an_operator_asks() -> None:
    """The event is named by its envelope; its data are not told."""
    told = letter().as_json()

    assert told == {
        "event_id": str(EVENT),
        "event_type": "order.paid",
        "consumer": "billing",
        "subscription": "billing-orders",
        "code": "NO_ACCOUNT",
        "reason": "no such account",
        "attempts": 3,
        "at": "2025-01-31T12:00:00+00:00",
        "ordering_key": "k",
        "sequence": 7,
        "message_id": "1",
    }


def test_one_that_holds_no_event_is_named_by_its_attributes() -> None:
    """As the relay named it, where it did."""
    found = letter(b"{", "UNDECODABLE", event_id="e", event_type="order.paid")

    assert (found.event_id, found.event_type, found.sequence) == ("e", "order.paid", 7)


def test_what_a_policy_forwarded_is_foreign_and_names_where_it_was() -> None:
    """Pub/Sub knows the subscription and how often it was delivered; not who could not act on it."""
    attributes = {
        "CloudPubSubDeadLetterSourceSubscription": "billing-orders",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "acme",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "own": "x",
    }

    found = DeadLetter.read("1", attributes, body())

    assert (found.code, found.consumer, found.attempts) == (FOREIGN, "", 5)
    assert found.subscription == "projects/acme/subscriptions/billing-orders"
    assert found.to_publish == {"own": "x"}


def test_a_replay_is_meant_for_the_one_consumer_that_failed() -> None:
    """With nothing else beside what the publisher gave it."""
    assert letter(own="x").to_publish == {"sequence": "7", "own": "x", "replayed_for": "billing"}


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({}, True),
        ({"consumer": "billing"}, True),
        ({"consumer": "shipping"}, False),
        ({"event_types": ("order.paid",)}, True),
        ({"event_types": ("cart.*", "order.*")}, True),
        ({"event_types": ("order",)}, False),
        ({"event_ids": frozenset({str(EVENT)})}, True),
        ({"event_ids": frozenset({"another"})}, False),
        ({"codes": frozenset({"NO_ACCOUNT", "GONE"})}, True),
        ({"codes": frozenset({"GONE"})}, False),
        ({"consumer": "billing", "codes": frozenset({"GONE"})}, False),
    ],
)
def test_a_choice_means_what_all_its_parts_mean(choice: dict[str, Any], *, meant: bool) -> None:
    """And an empty one everything."""
    assert Choice(**choice).takes(letter()) is meant
    assert Choice(**choice).narrows is bool(choice)


@pytest.mark.parametrize("found", [letter(b"{", "UNDECODABLE"), DeadLetter.read("1", {}, body())])
def test_what_would_fail_again_or_is_nobodys_is_replayed_only_when_named(found: DeadLetter) -> None:
    """It is listed like any other."""
    assert Choice().takes(found)
    assert not Choice().replays(found)
    assert Choice(codes=frozenset({found.code})).replays(found)


def test_the_order_is_that_in_which_events_were_stored() -> None:
    """What no relay has published has no place in it, and comes behind."""
    letters = [letter(sequence=sequence) for sequence in ("x", "10", "9")]

    assert [each.sequence for each in sorted(letters, key=lambda each: each.in_order)] == [9, 10, None]
