"""Topics, subscriptions and publishing: what a Pub/Sub service keeps and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.pubsub_v1 import types

if TYPE_CHECKING:
    from tests.contract.conftest import Service


async def test_a_topic_lives_from_create_to_delete(service: Service) -> None:
    """A topic is found and listed after its creation and NOT_FOUND after its deletion."""
    name = await service.topic()
    get, delete = types.GetTopicRequest(topic=name), types.DeleteTopicRequest(topic=name)
    assert (await service.call("Publisher/GetTopic", get)).name == name
    assert name in await names_of_topics(service)
    await service.call("Publisher/DeleteTopic", delete)
    assert await service.refusal("Publisher/GetTopic", get) == "NOT_FOUND"
    assert await service.refusal("Publisher/DeleteTopic", delete) == "NOT_FOUND"
    assert name not in await names_of_topics(service)


async def names_of_topics(service: Service) -> list[str]:
    """List all topics, in pages of two."""
    names: list[str] = []
    request = types.ListTopicsRequest(project="projects/contract", page_size=2)
    while True:
        answer = await service.call("Publisher/ListTopics", request)
        assert len(answer.topics) <= 2
        names += [topic.name for topic in answer.topics]
        if not answer.next_page_token:
            return names
        request.page_token = answer.next_page_token


async def test_pages_list_every_topic_once(service: Service) -> None:
    """Listing page by page shows each topic exactly once."""
    created = {await service.topic() for _ in range(5)}
    listed = [name for name in await names_of_topics(service) if name in created]
    assert sorted(listed) == sorted(created)


async def test_a_subscription_lives_from_create_to_delete(service: Service) -> None:
    """A subscription is found, listed with its topic, and NOT_FOUND after its deletion."""
    topic = await service.topic()
    name = await service.subscription(topic)
    get = types.GetSubscriptionRequest(subscription=name)
    of_topic = types.ListTopicSubscriptionsRequest(topic=topic)
    of_project = types.ListSubscriptionsRequest(project="projects/contract", page_size=1_000)
    found = await service.call("Subscriber/GetSubscription", get)
    assert (found.name, found.topic) == (name, topic)
    answer = await service.call("Publisher/ListTopicSubscriptions", of_topic)
    assert list(answer.subscriptions) == [name]
    listed = (await service.call("Subscriber/ListSubscriptions", of_project)).subscriptions
    assert name in [subscription.name for subscription in listed]
    delete = types.DeleteSubscriptionRequest(subscription=name)
    await service.call("Subscriber/DeleteSubscription", delete)
    assert await service.refusal("Subscriber/GetSubscription", get) == "NOT_FOUND"
    answer = await service.call("Publisher/ListTopicSubscriptions", of_topic)
    assert not answer.subscriptions


async def test_names_are_given_once(service: Service) -> None:
    """Creating what exists is refused with ALREADY_EXISTS."""
    topic = await service.topic()
    subscription = await service.subscription(topic)
    again: list[tuple[str, Any]] = [
        ("Publisher/CreateTopic", types.Topic(name=topic)),
        ("Subscriber/CreateSubscription", types.Subscription(name=subscription, topic=topic)),
    ]
    for method, request in again:
        assert await service.refusal(method, request) == "ALREADY_EXISTS"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t-1",
        "projects/contract/t-1",
        "projects/contract/subscriptions/t-1",
        "projects/contract/topics/ab",
        "projects/contract/topics/1ab",
        "projects/contract/topics/goog-1",
        "projects/contract/topics/a/b",
        "projects/contract/topics/a b c",
        "projects/contract/topics/" + "a" * 256,
    ],
)
async def test_a_malformed_topic_name_is_refused(service: Service, name: str) -> None:
    """A topic's name has the form of a resource name and an id within the rules."""
    request = types.Topic(name=name)
    assert await service.refusal("Publisher/CreateTopic", request) == "INVALID_ARGUMENT"


async def test_a_malformed_subscription_name_is_refused(service: Service) -> None:
    """A subscription's name obeys the same rules as a topic's."""
    topic = await service.topic()
    for name in ("s-1", "projects/contract/topics/s-1", "projects/contract/subscriptions/1"):
        request = types.Subscription(name=name, topic=topic)
        assert await service.refusal("Subscriber/CreateSubscription", request) == "INVALID_ARGUMENT"


async def test_what_does_not_exist_is_not_found(service: Service) -> None:
    """Every call that names a missing topic or subscription is refused with NOT_FOUND."""
    topic = "projects/contract/topics/missing"
    name = "projects/contract/subscriptions/missing"
    message = types.PubsubMessage(data=b"x")
    calls: list[tuple[str, Any]] = [
        ("Publisher/Publish", types.PublishRequest(topic=topic, messages=[message])),
        ("Publisher/ListTopicSubscriptions", types.ListTopicSubscriptionsRequest(topic=topic)),
        ("Subscriber/CreateSubscription", types.Subscription(name=name, topic=topic)),
        ("Subscriber/DeleteSubscription", types.DeleteSubscriptionRequest(subscription=name)),
        ("Subscriber/Pull", types.PullRequest(subscription=name, max_messages=1)),
        ("Subscriber/Acknowledge", types.AcknowledgeRequest(subscription=name, ack_ids=["x"])),
        (
            "Subscriber/ModifyAckDeadline",
            types.ModifyAckDeadlineRequest(subscription=name, ack_ids=["x"]),
        ),
    ]
    for method, request in calls:
        assert (method, await service.refusal(method, request)) == (method, "NOT_FOUND")


async def test_the_ack_deadline_is_ten_seconds_by_default(service: Service) -> None:
    """A subscription created without an ack deadline has one of ten seconds."""
    name = await service.subscription(await service.topic())
    request = types.GetSubscriptionRequest(subscription=name)
    found = await service.call("Subscriber/GetSubscription", request)
    assert found.ack_deadline_seconds == 10


@pytest.mark.parametrize("seconds", [-1, 9, 601])
async def test_an_ack_deadline_out_of_bounds_is_refused(service: Service, seconds: int) -> None:
    """A subscription's ack deadline is 10 to 600 seconds."""
    name = "projects/contract/subscriptions/bounds"
    request = types.Subscription(name=name, topic=await service.topic(), ack_deadline_seconds=seconds)
    assert await service.refusal("Subscriber/CreateSubscription", request) == "INVALID_ARGUMENT"


async def test_a_subscription_outlives_its_topic(service: Service) -> None:
    """Deleting a topic leaves its subscriptions, what they hold, and `_deleted-topic_`."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "kept")
    await service.call("Publisher/DeleteTopic", types.DeleteTopicRequest(topic=topic))
    request = types.GetSubscriptionRequest(subscription=name)
    assert (await service.call("Subscriber/GetSubscription", request)).topic == "_deleted-topic_"
    assert [each.message.data for each in await service.pull(name, 1)] == [b"kept"]


def wide(size: int) -> str:
    """Return text of two bytes a character, to tell bytes from characters."""
    return "é" * (size // 2) + "x" * (size % 2)


BROKEN: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "no message": list,
    "1,001 messages": lambda: [{"data": b"x"}] * 1_001,
    "neither data nor attributes": lambda: [{}],
    "only an ordering key": lambda: [{"ordering_key": "k"}],
    "101 attributes": lambda: [{"attributes": {f"k{n}": "v" for n in range(101)}}],
    "empty attribute key": lambda: [{"attributes": {"": "v"}}],
    "attribute key of 257 bytes": lambda: [{"attributes": {wide(257): "v"}}],
    "reserved attribute key": lambda: [{"attributes": {"googclient": "v"}}],
    "attribute value of 1,025 bytes": lambda: [{"attributes": {"k": wide(1_025)}}],
    "ordering key of 1,025 bytes": lambda: [{"data": b"x", "ordering_key": wide(1_025)}],
    "two ordering keys": lambda: [
        {"data": b"x", "ordering_key": "a"},
        {"data": b"x", "ordering_key": "b"},
    ],
    "one with an ordering key, one without": lambda: [
        {"data": b"x", "ordering_key": "a"},
        {"data": b"x"},
    ],
    "one bad message among good ones": lambda: [{"data": b"x"}, {}, {"data": b"x"}],
    "10,000,001 bytes": lambda: [{"data": b"x" * 10_000_001}],
    "12 MB": lambda: [{"data": b"x" * 12_000_000}],
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_request_beyond_the_limits_is_refused_whole(service: Service, case: str) -> None:
    """A publish that breaks a rule is INVALID_ARGUMENT, and none of its messages is stored."""
    topic = await service.topic()
    name = await service.subscription(topic)
    messages = [types.PubsubMessage(message) for message in BROKEN[case]()]
    request = types.PublishRequest(topic=topic, messages=messages)
    assert await service.refusal("Publisher/Publish", request) == "INVALID_ARGUMENT"
    await service.publish(topic, "next")
    assert [each.message.data for each in await service.pull(name, 1)] == [b"next"]


ALLOWED: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "1,000 messages": lambda: [{"data": b"x"}] * 1_000,
    "only attributes": lambda: [{"attributes": {"k": ""}}],
    "100 attributes": lambda: [{"attributes": {f"k{n}": "v" for n in range(100)}}],
    "attribute key of 256 bytes": lambda: [{"attributes": {wide(256): "v"}}],
    "attribute value of 1,024 bytes": lambda: [{"attributes": {"k": wide(1_024)}}],
    "ordering key of 1,024 bytes": lambda: [{"data": b"x", "ordering_key": wide(1_024)}],
    "9.9 MB": lambda: [{"data": b"x" * 9_900_000}],
}


@pytest.mark.parametrize("case", ALLOWED)
async def test_a_request_at_the_limits_is_stored(service: Service, case: str) -> None:
    """A publish that just keeps to the rules arrives as it was sent."""
    topic = await service.topic()
    name = await service.subscription(topic)
    sent = ALLOWED[case]()
    ids = await service.publish(topic, *sent)
    received = [each.message for each in await service.pull(name, len(sent))]
    assert sorted(each.message_id for each in received) == sorted(ids)
    assert [
        {"data": each.data, "attributes": dict(each.attributes), "key": each.ordering_key} for each in received
    ] == [
        {
            "data": each.get("data", b""),
            "attributes": each.get("attributes", {}),
            "key": each.get("ordering_key", ""),
        }
        for each in sent
    ]
