"""Changing a subscription: which of its settings can be, and what then follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.pubsub_v1 import types

if TYPE_CHECKING:
    from tests.contract.conftest import Service


def change(name: str, *paths: str, **settings: Any) -> types.UpdateSubscriptionRequest:
    """Ask for these settings."""
    return types.UpdateSubscriptionRequest(subscription={"name": name, **settings}, update_mask={"paths": paths})


async def test_what_the_mask_names_is_changed(service: Service) -> None:
    """The rest stays, whatever the request has for it; the answer is the new description."""
    name = await service.subscription(await service.topic(), ack_deadline_seconds=20, labels={"a": "1"})
    request = change(name, "ack_deadline_seconds", ack_deadline_seconds=33, labels={"b": "2"})
    answer = await service.call("Subscriber/UpdateSubscription", request)
    found = await service.call("Subscriber/GetSubscription", types.GetSubscriptionRequest(subscription=name))
    for each in (answer, found):
        assert (each.name, each.ack_deadline_seconds, dict(each.labels)) == (name, 33, {"a": "1"})


async def test_a_policy_is_set_and_cleared(service: Service) -> None:
    """A policy is replaced as a whole, and gone when the request has none."""
    topic, letters = await service.topic(), await service.topic()
    name = await service.subscription(topic)
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 7}
    await service.call("Subscriber/UpdateSubscription", change(name, "dead_letter_policy", dead_letter_policy=policy))
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    assert received.delivery_attempt == 1
    await service.modify(name, 0, received)
    answer = await service.call("Subscriber/UpdateSubscription", change(name, "dead_letter_policy"))
    assert not answer.dead_letter_policy
    (received,) = await service.pull(name, 1)
    assert received.delivery_attempt == 0


async def test_an_exactly_once_subscription_becomes_an_ordinary_one(service: Service) -> None:
    """And the other way: ack ids that settle nothing are refused, or not."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    await service.acknowledge(name, received)
    again = types.AcknowledgeRequest(subscription=name, ack_ids=[received.ack_id])
    for exactly_once, code in ((True, "INVALID_ARGUMENT"), (False, "OK")):
        request = change(name, "enable_exactly_once_delivery", enable_exactly_once_delivery=exactly_once)
        answer = await service.call("Subscriber/UpdateSubscription", request)
        assert answer.enable_exactly_once_delivery is exactly_once
        assert await service.refusal("Subscriber/Acknowledge", again) == code


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "nothing": ((), {"ack_deadline_seconds": 20}, "INVALID_ARGUMENT"),
    "a topic": (("topic",), {"topic": "projects/contract/topics/other"}, "INVALID_ARGUMENT"),
    "an order": (("enable_message_ordering",), {"enable_message_ordering": True}, "INVALID_ARGUMENT"),
    "a filter": (("filter",), {"filter": "attributes:kind"}, "INVALID_ARGUMENT"),
    "no field": (("deadline",), {}, "INVALID_ARGUMENT"),
    "part of a field": (("dead_letter_policy.max_delivery_attempts",), {}, "INVALID_ARGUMENT"),
    "a deadline of 601 s": (("ack_deadline_seconds",), {"ack_deadline_seconds": 601}, "INVALID_ARGUMENT"),
    "a pause of 601 s": (
        ("retry_policy",),
        {"retry_policy": {"maximum_backoff": {"seconds": 601}}},
        "INVALID_ARGUMENT",
    ),
    "a missing dead-letter topic": (
        ("dead_letter_policy",),
        {"dead_letter_policy": {"dead_letter_topic": "projects/contract/topics/missing"}},
        "NOT_FOUND",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_change_against_the_rules_is_refused(service: Service, case: str) -> None:
    """And changes nothing."""
    paths, settings, code = REFUSED[case]
    name = await service.subscription(await service.topic())
    get = types.GetSubscriptionRequest(subscription=name)
    before = await service.call("Subscriber/GetSubscription", get)
    assert await service.refusal("Subscriber/UpdateSubscription", change(name, *paths, **settings)) == code
    assert await service.call("Subscriber/GetSubscription", get) == before


async def test_only_a_subscription_that_exists_is_changed(service: Service) -> None:
    """NOT_FOUND otherwise."""
    request = change("projects/contract/subscriptions/missing", "labels")
    assert await service.refusal("Subscriber/UpdateSubscription", request) == "NOT_FOUND"
