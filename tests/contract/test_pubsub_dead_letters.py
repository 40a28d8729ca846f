"""What becomes of a message that keeps failing: attempts, pauses between them, and dead letters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from google.pubsub_v1 import types

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PREFIX = "CloudPubSubDeadLetterSource"
ATTEMPTS = 5


async def burying(service: Service, topic: str, **settings: Any) -> tuple[str, str]:
    """Subscribe to a topic with a dead-letter topic, and to that one."""
    letters = await service.topic()
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": ATTEMPTS}
    name = await service.subscription(topic, dead_letter_policy=policy, **settings)
    return name, await service.subscription(letters)


async def fail(service: Service, name: str, attempts: int = ATTEMPTS) -> Any:
    """Pull and give back one message so often."""
    for attempt in range(1, attempts + 1):
        received, *_ = await service.pull(name, 1)
        assert received.delivery_attempt == attempt
        await service.modify(name, 0, received)
    return received


def check_dead_letter(letter: Any, source: Any, subscription: str) -> None:
    """It is the message as it was, another one to its topic, and tells where it comes from."""
    attributes = dict(letter.message.attributes)
    published = source.message.publish_time
    assert attributes.pop(f"{PREFIX}DeliveryCount") == str(ATTEMPTS)
    assert attributes.pop(f"{PREFIX}Subscription") == subscription.rpartition("/")[2]
    assert attributes.pop(f"{PREFIX}SubscriptionProject") == "contract"
    at = attributes.pop(f"{PREFIX}TopicPublishTime")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", at)
    assert at.startswith(published.strftime("%Y-%m-%dT%H:%M:%S."))
    assert attributes == dict(source.message.attributes)
    assert letter.message.data == source.message.data
    assert letter.message.ordering_key == source.message.ordering_key
    assert letter.message.message_id != source.message.message_id
    assert letter.message.publish_time >= published
    assert letter.delivery_attempt == 0


async def test_the_last_attempt_of_a_pull_makes_a_dead_letter(service: Service) -> None:
    """The message moves on to the dead-letter topic, and does not come again here."""
    topic = await service.topic()
    name, letters = await burying(service, topic)
    await service.publish(topic, {"data": b"x", "attributes": {"k": "v"}, "ordering_key": "key"})
    source = await fail(service, name)
    (letter,) = await service.pull(letters, 1)
    check_dead_letter(letter, source, name)
    assert not await service.pull_now(name)


async def test_the_last_attempt_of_a_stream_makes_a_dead_letter(service: Service) -> None:
    """Over streams as by pulls, on both sides."""
    topic = await service.topic()
    name, letters = await burying(service, topic)
    stream, reading = await service.stream(name), await service.stream(letters)
    await service.publish(topic, {"attributes": {"k": "v"}})
    for attempt in range(1, ATTEMPTS + 1):
        source = await stream.next()
        assert source.delivery_attempt == attempt
        await stream.send(modify_deadline_ack_ids=[source.ack_id], modify_deadline_seconds=[0])
    check_dead_letter(await reading.next(), source, name)
    for each in (stream, reading):
        each.call.cancel()


async def test_a_key_goes_on_without_its_dead_letter(service: Service) -> None:
    """The next message of the key is delivered as if the first had been acknowledged, at its own first attempt."""
    topic = await service.topic()
    name, letters = await burying(service, topic, enable_message_ordering=True)
    await service.publish(topic, *[{"data": each, "ordering_key": "k"} for each in (b"0", b"1")])
    await fail(service, name)
    (letter,) = await service.pull(letters, 1)
    assert letter.message.data == b"0"
    (received,) = await service.pull(name, 1)
    assert (received.message.data, received.delivery_attempt) == (b"1", 1)


async def test_a_dead_letter_needs_nobody_at_its_source(service: Service) -> None:
    """A last attempt whose deadline passes makes one, whether or not anyone still pulls there."""
    topic = await service.topic()
    name, letters = await burying(service, topic)
    await service.publish(topic, "x")
    await fail(service, name, ATTEMPTS - 1)
    (last,) = await service.pull(name, 1)
    reading = await service.stream(letters)
    await service.modify(name, 1, last)
    check_dead_letter(await reading.next(), last, name)
    reading.call.cancel()


async def test_a_dead_letter_passes_the_filters_of_its_topic(service: Service) -> None:
    """They see the attributes that it got on its way."""
    topic, letters = await service.topic(), await service.topic()
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": ATTEMPTS}
    name = await service.subscription(topic, dead_letter_policy=policy)
    short = name.rpartition("/")[2]
    mine = await service.subscription(letters, filter=f'attributes.{PREFIX}Subscription = "{short}"')
    others = await service.subscription(letters, filter=f'attributes.{PREFIX}Subscription != "{short}"')
    await service.publish(topic, "x")
    await fail(service, name)
    assert [each.message.data for each in await service.pull(mine, 1)] == [b"x"]
    assert not await service.pull_now(others)


async def test_without_its_topic_a_message_is_delivered_on(service: Service) -> None:
    """Nothing is lost when the dead-letter topic is deleted; the attempts are counted on."""
    topic, letters = await service.topic(), await service.topic()
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": ATTEMPTS}
    name = await service.subscription(topic, dead_letter_policy=policy)
    await service.call("Publisher/DeleteTopic", types.DeleteTopicRequest(topic=letters))
    await service.publish(topic, "x")
    await fail(service, name, attempts=ATTEMPTS + 2)


async def test_five_attempts_are_the_default(service: Service) -> None:
    """None said is five."""
    name = await service.subscription(
        await service.topic(), dead_letter_policy={"dead_letter_topic": await service.topic()}
    )
    found = await service.call("Subscriber/GetSubscription", types.GetSubscriptionRequest(subscription=name))
    assert found.dead_letter_policy.max_delivery_attempts == 5


@pytest.mark.parametrize("attempts", [-1, 4, 101])
async def test_attempts_out_of_bounds_are_refused(service: Service, attempts: int) -> None:
    """A message is attempted 5 to 100 times."""
    topic = await service.topic()
    request = types.Subscription(
        name="projects/contract/subscriptions/attempts",
        topic=topic,
        dead_letter_policy={"dead_letter_topic": topic, "max_delivery_attempts": attempts},
    )
    assert await service.refusal("Subscriber/CreateSubscription", request) == "OUT_OF_RANGE"


async def test_a_dead_letter_topic_has_to_exist(service: Service) -> None:
    """NOT_FOUND, when the subscription is made."""
    request = types.Subscription(
        name="projects/contract/subscriptions/no-dead-letters",
        topic=await service.topic(),
        dead_letter_policy={"dead_letter_topic": "projects/contract/topics/missing"},
    )
    assert await service.refusal("Subscriber/CreateSubscription", request) == "NOT_FOUND"


async def test_a_retry_policy_has_defaults(service: Service) -> None:
    """Ten seconds to ten minutes, each by itself."""
    topic = await service.topic()
    for policy, pauses in (
        ({}, (10, 600)),
        ({"minimum_backoff": {"seconds": 20}}, (20, 600)),
        ({"maximum_backoff": {"seconds": 30}}, (10, 30)),
    ):
        name = await service.subscription(topic, retry_policy=policy)
        found = await service.call("Subscriber/GetSubscription", types.GetSubscriptionRequest(subscription=name))
        told = found.retry_policy
        assert (told.minimum_backoff.total_seconds(), told.maximum_backoff.total_seconds()) == pauses


@pytest.mark.parametrize(("lowest", "highest"), [(601, 601), (0, 601), (-1, 10), (30, 10)])
async def test_a_retry_policy_out_of_bounds_is_refused(service: Service, lowest: int, highest: int) -> None:
    """A pause is 0 to 600 seconds, and the longest is no shorter than the shortest."""
    request = types.Subscription(
        name="projects/contract/subscriptions/pauses",
        topic=await service.topic(),
        retry_policy={"minimum_backoff": {"seconds": lowest}, "maximum_backoff": {"seconds": highest}},
    )
    assert await service.refusal("Subscriber/CreateSubscription", request) == "INVALID_ARGUMENT"
