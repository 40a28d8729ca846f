"""Pulling: what a Pub/Sub service delivers, to whom, in which order, and when again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PATIENCE = 10.0


async def test_message_ids_are_unique(service: Service) -> None:
    """Each message of each request gets an id of its own."""
    topics = [await service.topic(), await service.topic()]
    ids = [number for topic in topics * 2 for number in await service.publish(topic, "a", "b")]
    assert len(set(ids)) == 8


async def test_every_subscription_gets_every_message(service: Service) -> None:
    """A message reaches all subscriptions that existed, with the service's id and time."""
    topic = await service.topic()
    names = [await service.subscription(topic) for _ in range(2)]
    forged = {"data": b"x", "message_id": "forged", "publish_time": {"seconds": 1, "nanos": 5}}
    (message_id,) = await service.publish(topic, forged)
    for name in names:
        (received,) = await service.pull(name, 1)
        assert received.message.message_id == message_id != "forged"
        assert received.message.publish_time.timestamp() > 1_700_000_000


async def test_a_subscription_begins_with_its_creation(service: Service) -> None:
    """What was published before a subscription existed is not delivered to it."""
    topic = await service.topic()
    await service.publish(topic, "before")
    name = await service.subscription(topic)
    await service.publish(topic, "after")
    assert [each.message.data for each in await service.pull(name, 1)] == [b"after"]


async def test_a_pull_waits_for_a_message(service: Service) -> None:
    """A pull that finds nothing is answered with what is published meanwhile."""
    topic = await service.topic()
    name = await service.subscription(topic)
    waiting = asyncio.create_task(service.pull(name, 1))
    await service.publish(topic, "late")
    assert [each.message.data for each in await waiting] == [b"late"]


async def test_a_pull_of_nothing_ends_with_its_callers_patience(service: Service) -> None:
    """A pull with nothing to deliver ends empty or DEADLINE_EXCEEDED, within its deadline."""
    name = await service.subscription(await service.topic())
    request = types.PullRequest(subscription=name, max_messages=1)
    async with asyncio.timeout(PATIENCE):
        code = await service.refusal("Subscriber/Pull", request, timeout=0.5)
    assert code in {"OK", "DEADLINE_EXCEEDED"}


async def test_a_pull_asks_for_at_least_one_message(service: Service) -> None:
    """A pull of no or fewer messages is refused."""
    name = await service.subscription(await service.topic())
    for limit in (0, -1):
        request = types.PullRequest(subscription=name, max_messages=limit)
        assert await service.refusal("Subscriber/Pull", request) == "INVALID_ARGUMENT"


async def test_a_pull_brings_no_more_than_asked_for(service: Service) -> None:
    """A pull brings at most its maximum; the rest comes with later ones."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "a", "b", "c")
    first = await service.pull_now(name, limit=2)
    assert 1 <= len(first) <= 2
    rest = await service.pull(name, 3 - len(first))
    assert sorted(each.message.data for each in [*first, *rest]) == [b"a", b"b", b"c"]


async def test_an_acknowledged_message_stays_away(service: Service) -> None:
    """After its acknowledgement, neither a nack nor a deadline brings a message back."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "done")
    (received,) = await service.pull(name, 1)
    await service.acknowledge(name, received)
    await service.modify(name, 0, received)
    await service.publish(topic, "next")
    assert [each.message.data for each in await service.pull(name, 1)] == [b"next"]
    assert not await service.pull_now(name)


async def test_an_ack_id_that_was_never_given_is_refused(service: Service) -> None:
    """An ack id that the service cannot have made is INVALID_ARGUMENT, as is none at all."""
    name = await service.subscription(await service.topic())
    for ack_ids in (["made up"], []):
        settle = types.AcknowledgeRequest(subscription=name, ack_ids=ack_ids)
        assert await service.refusal("Subscriber/Acknowledge", settle) == "INVALID_ARGUMENT"
        extend = types.ModifyAckDeadlineRequest(subscription=name, ack_ids=ack_ids, ack_deadline_seconds=10)
        assert await service.refusal("Subscriber/ModifyAckDeadline", extend) == "INVALID_ARGUMENT"


async def test_a_key_waits_while_a_pull_holds_it(service: Service) -> None:
    """Later messages of a key are held back from pulls until the earlier ones are settled."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    await service.publish(topic, *[{"data": each, "ordering_key": "k"} for each in (b"0", b"1")])
    first = await service.pull_now(name, limit=1)
    assert [each.message.data for each in first] == [b"0"]
    assert not await service.pull_now(name)
    await service.acknowledge(name, *first)
    assert [each.message.data for each in await service.pull(name, 1)] == [b"1"]


async def test_a_held_message_is_not_delivered_again(service: Service) -> None:
    """While its deadline runs, a delivered message is held back from other pulls."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "held")
    await service.pull(name, 1)
    assert not await service.pull_now(name)


async def test_a_nacked_message_comes_again_under_a_new_ack_id(service: Service) -> None:
    """A deadline of 0 gives a message back, and its next delivery has another ack id."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "again")
    (first,) = await service.pull(name, 1)
    await service.modify(name, 0, first)
    (second,) = await service.pull(name, 1)
    assert second.message == first.message
    assert second.ack_id != first.ack_id


async def test_a_message_whose_deadline_passed_comes_again(service: Service) -> None:
    """A deadline that passes without acknowledgement brings the message back."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "again")
    (first,) = await service.pull(name, 1)
    await service.modify(name, 1, first)
    (second,) = await service.pull(name, 1)
    assert second.message == first.message
    assert second.ack_id != first.ack_id


@pytest.mark.parametrize("seconds", [-1, 601])
async def test_a_new_deadline_out_of_bounds_is_refused(service: Service, seconds: int) -> None:
    """A delivery's new deadline is 0 to 600 seconds."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    request = types.ModifyAckDeadlineRequest(subscription=name, ack_ids=[received.ack_id], ack_deadline_seconds=seconds)
    assert await service.refusal("Subscriber/ModifyAckDeadline", request) == "INVALID_ARGUMENT"


async def test_attempts_are_told_beside_a_dead_letter_policy(service: Service) -> None:
    """The delivery attempt counts from one with a dead-letter policy, and is 0 without."""
    topic = await service.topic()
    policy = {"dead_letter_topic": await service.topic(), "max_delivery_attempts": 5}
    counted = await service.subscription(topic, dead_letter_policy=policy)
    silent = await service.subscription(topic)
    await service.publish(topic, "x")
    for name, attempts in ((counted, [1, 2]), (silent, [0, 0])):
        for attempt in attempts:
            (received,) = await service.pull(name, 1)
            assert received.delivery_attempt == attempt
            await service.modify(name, 0, received)


async def test_a_retry_policy_delays_the_next_delivery(service: Service) -> None:
    """A nacked message rests for at least the retry policy's minimum."""
    topic = await service.topic()
    backoff = {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 1}}
    name = await service.subscription(topic, retry_policy=backoff)
    await service.publish(topic, "x")
    (received,) = await service.pull(name, 1)
    clock = asyncio.get_running_loop().time
    nacked_at = clock()
    await service.modify(name, 0, received)
    await service.pull(name, 1)
    assert clock() - nacked_at >= 0.9


async def test_a_key_is_delivered_in_order(service: Service) -> None:
    """Messages of one ordering key arrive in the order in which they were published."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    for start in range(0, 30, 10):
        for key in "ab":
            batch = [f"{key}{number:02}" for number in range(start, start + 10)]
            await service.publish(topic, *[{"data": each.encode(), "ordering_key": key} for each in batch])
    arrived: dict[str, list[str]] = {"a": [], "b": []}
    while sum(map(len, arrived.values())) < 60:
        received = await service.pull(name, 1)
        for each in received:
            arrived[each.message.ordering_key].append(each.message.data.decode())
        await service.acknowledge(name, *received)
    for key, data in arrived.items():
        assert data == [f"{key}{number:02}" for number in range(30)]


async def test_a_nack_repeats_the_key_in_order(service: Service) -> None:
    """A nacked message of a key comes again before every later one that was outstanding."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    await service.publish(topic, *[{"data": each, "ordering_key": "k"} for each in (b"0", b"1", b"2")])
    first = await service.pull(name, 3)
    assert [each.message.data for each in first] == [b"0", b"1", b"2"]
    await service.acknowledge(name, first[0])
    await service.modify(name, 0, first[1])
    assert [each.message.data for each in await service.pull(name, 2)] == [b"1", b"2"]


async def test_the_stock_async_clients_work(service: Service) -> None:
    """Google's own asynchronous clients publish, pull and acknowledge."""
    publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=service.channel))
    subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=service.channel))
    topic = (await publisher.create_topic(name="projects/contract/topics/stock-async")).name
    name = "projects/contract/subscriptions/stock-async"
    await subscriber.create_subscription(name=name, topic=topic)
    message = types.PubsubMessage(data=b"x", attributes={"k": "v"})
    published = await publisher.publish(topic=topic, messages=[message])
    pulled = await subscriber.pull(subscription=name, max_messages=10, timeout=PATIENCE)
    (received,) = pulled.received_messages
    assert [received.message.message_id] == list(published.message_ids)
    assert (received.message.data, dict(received.message.attributes)) == (b"x", {"k": "v"})
    await subscriber.acknowledge(subscription=name, ack_ids=[received.ack_id])
    assert not await service.pull_now(name)
