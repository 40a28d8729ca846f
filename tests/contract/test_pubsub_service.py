"""What a Pub/Sub service does, held against our emulator and, where it is installed, Google's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from google.cloud.pubsub_v1 import SubscriberClient
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

if TYPE_CHECKING:
    from tests.contract.conftest import Service

PATIENCE = 10.0
HANGS = True

# Where Google's emulator (0.8.20) departs from the service. Test -> what it does, whether it hangs.
_BEYOND = "test_a_request_beyond_the_limits_is_refused_whole"
GOOGLE_FAULTS: dict[str, tuple[str, bool]] = {
    "test_what_does_not_exist_is_not_found": ("lists no subscriptions of a missing topic", False),
    "test_an_ack_deadline_out_of_bounds_is_refused[9]": ("accepts less than ten seconds", False),
    "test_a_new_deadline_out_of_bounds_is_refused[601]": ("accepts more than 600 seconds", False),
    "test_a_pull_asks_for_at_least_one_message": ("waits for no message", HANGS),
    "test_a_retry_policy_delays_the_next_delivery": ("ignores retry policies", False),
    "test_a_filter_is_honoured_or_refused": ("ignores filters", False),
    "test_a_nack_repeats_the_key_in_order": ("misorders a key after a nack", HANGS),
    "test_a_nack_on_a_stream_repeats_the_key_in_order": ("misorders a key after a nack", HANGS),
    "test_a_stream_holds_no_more_messages_than_it_agreed_to": ("ignores flow control", False),
    "test_a_stream_holds_no_more_bytes_than_it_agreed_to": ("ignores flow control", False),
    "test_two_streams_share_the_messages": ("ignores flow control: one gets all", HANGS),
    f"{_BEYOND}[101 attributes]": ("has no limits on attributes", False),
    f"{_BEYOND}[empty attribute key]": ("has no limits on attributes", False),
    f"{_BEYOND}[attribute key of 257 bytes]": ("has no limits on attributes", False),
    f"{_BEYOND}[reserved attribute key]": ("has no limits on attributes", False),
    f"{_BEYOND}[attribute value of 1,025 bytes]": ("has no limits on attributes", False),
    f"{_BEYOND}[ordering key of 1,025 bytes]": ("has no limit on ordering keys", False),
    f"{_BEYOND}[two ordering keys]": ("accepts several ordering keys in a request", False),
    f"{_BEYOND}[one with an ordering key, one without]": (
        "accepts several ordering keys in a request",
        False,
    ),
    f"{_BEYOND}[10,000,001 bytes]": ("accepts somewhat more than 10 MB", False),
    f"{_BEYOND}[12 MB]": ("never answers a request of 12 MB", HANGS),
}


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


async def test_a_filter_is_honoured_or_refused(service: Service) -> None:
    """A subscription with a filter delivers what passes it, or is not created at all."""
    topic = await service.topic()
    name = "projects/contract/subscriptions/filtered"
    request = types.Subscription(name=name, topic=topic, filter='attributes.kind = "wanted"')
    if (code := await service.refusal("Subscriber/CreateSubscription", request)) != "OK":
        assert code == "UNIMPLEMENTED"
        return
    await service.publish(topic, {"data": b"no"}, {"attributes": {"kind": "wanted"}})
    assert [each.message.data for each in await service.pull(name, 1)] == [b""]


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


async def test_a_stream_delivers_and_settles(service: Service) -> None:
    """A stream brings messages as they are published; what it acknowledges stays away."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    for data in ("a", "b"):
        await service.publish(topic, data)
        received = await stream.next()
        assert received.message.data == data.encode()
        await stream.send(ack_ids=[received.ack_id])
    await service.publish(topic, "c")
    assert (await stream.next()).message.data == b"c"
    stream.call.cancel()


async def test_a_stream_gives_messages_back(service: Service) -> None:
    """A deadline of 0 on the stream brings a message again, under another ack id."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    first = await stream.next()
    await stream.send(modify_deadline_ack_ids=[first.ack_id], modify_deadline_seconds=[0])
    second = await stream.next()
    assert second.message == first.message
    assert second.ack_id != first.ack_id
    stream.call.cancel()


async def test_a_stream_brings_what_expired_elsewhere(service: Service) -> None:
    """A message whose deadline passes is streamed again without anyone asking."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    first = await stream.next()
    await stream.send(modify_deadline_ack_ids=[first.ack_id], modify_deadline_seconds=[1])
    assert (await stream.next()).message == first.message
    stream.call.cancel()


async def test_a_stream_holds_no_more_messages_than_it_agreed_to(service: Service) -> None:
    """A stream never holds more than its maximum of messages, and gets all in the end."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, *[str(number) for number in range(10)])
    stream = await service.stream(name, max_outstanding_messages=3)
    arrived: list[bytes] = []
    held: list[str] = []
    while len(arrived) < 10:
        for received in await stream.next_response():
            arrived.append(received.message.data)
            held.append(received.ack_id)
        assert len(held) <= 3
        if len(held) == 3:
            await stream.send(ack_ids=held)
            held = []
    assert sorted(arrived) == [str(number).encode() for number in range(10)]
    stream.call.cancel()


async def test_a_stream_holds_no_more_bytes_than_it_agreed_to(service: Service) -> None:
    """A stream never holds a second message beyond its bytes, and gets all in the end."""
    topic = await service.topic()
    name = await service.subscription(topic)
    await service.publish(topic, *["x" * 1_000 for _ in range(6)])
    stream = await service.stream(name, max_outstanding_bytes=1_500)
    for arrived in range(0, 6, 2):
        held = [await stream.next(), await stream.next()]
        assert not stream._buffer, f"{arrived} settled, more than two held"
        await stream.send(ack_ids=[each.ack_id for each in held])
    stream.call.cancel()


async def test_a_nack_on_a_stream_repeats_the_key_in_order(service: Service) -> None:
    """A nacked message of a key is streamed again, and after it every later one that was held."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    stream = await service.stream(name)
    await service.publish(topic, *[{"data": b"%d" % number, "ordering_key": "k"} for number in range(4)])
    held = [await stream.next() for _ in range(4)]
    await stream.send(
        ack_ids=[held[0].ack_id],
        modify_deadline_ack_ids=[held[1].ack_id],
        modify_deadline_seconds=[0],
    )
    again = [await stream.next() for _ in range(3)]
    assert [each.message.data for each in again] == [b"1", b"2", b"3"]
    assert not {each.ack_id for each in again} & {each.ack_id for each in held}
    stream.call.cancel()


async def test_two_streams_share_the_messages(service: Service) -> None:
    """Each message goes to one of a subscription's streams."""
    topic = await service.topic()
    name = await service.subscription(topic)
    streams = [await service.stream(name, max_outstanding_messages=5) for _ in range(2)]
    await service.publish(topic, *[str(number) for number in range(10)])
    arrived = [await stream.next() for stream in streams for _ in range(5)]
    assert sorted(int(each.message.data) for each in arrived) == list(range(10))
    for stream in streams:
        stream.call.cancel()


BAD_STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "missing subscription": (
        {"subscription": "projects/contract/subscriptions/missing"},
        "NOT_FOUND",
    ),
    "no subscription": ({"subscription": ""}, "INVALID_ARGUMENT"),
    "deadline of 9 s": ({"stream_ack_deadline_seconds": 9}, "INVALID_ARGUMENT"),
    "deadline of 601 s": ({"stream_ack_deadline_seconds": 601}, "INVALID_ARGUMENT"),
    "deadline without ack id": ({"modify_deadline_seconds": [10]}, "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("case", BAD_STREAMS)
async def test_a_bad_first_request_ends_the_stream(service: Service, case: str) -> None:
    """A stream that begins against the rules ends with the reason."""
    request, code = BAD_STREAMS[case]
    name = await service.subscription(await service.topic())
    stream = await service.stream(name, **request)
    assert await stream.refusal() == code


async def test_a_stream_names_its_subscription_once(service: Service) -> None:
    """A later request that names a subscription ends the stream."""
    name = await service.subscription(await service.topic())
    stream = await service.stream(name)
    await stream.send(subscription=name)
    assert await stream.refusal() == "INVALID_ARGUMENT"


async def test_a_stream_ends_with_its_subscription(service: Service) -> None:
    """Deleting the subscription ends its streams with NOT_FOUND."""
    topic = await service.topic()
    name = await service.subscription(topic)
    stream = await service.stream(name)
    await service.publish(topic, "x")
    await stream.next()
    request = types.DeleteSubscriptionRequest(subscription=name)
    await service.call("Subscriber/DeleteSubscription", request)
    assert await stream.refusal() == "NOT_FOUND"


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


async def test_the_stock_subscribe_settles(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Google's own `subscribe` nacks comes again; what it acknowledges stays away."""
    topic = await service.topic()
    name = await service.subscription(topic)
    async with subscribed(service, name, monkeypatch, nack_once=b"1") as arrived:
        await service.publish(topic, "0", "1", "2")
        data = [await arrived.get() for _ in range(4)]
    assert sorted(data) == [b"0", b"1", b"1", b"2"]
    assert not await service.pull_now(name)


async def test_the_stock_subscribe_keeps_a_key_in_order(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's own `subscribe` handles the messages of a key in order."""
    topic = await service.topic()
    name = await service.subscription(topic, enable_message_ordering=True)
    expected = [b"%d" % number for number in range(20)]
    async with subscribed(service, name, monkeypatch) as arrived:
        for each in expected:
            await service.publish(topic, {"data": each, "ordering_key": "k"})
        assert [await arrived.get() for _ in expected] == expected


@asynccontextmanager
async def subscribed(
    service: Service, name: str, monkeypatch: pytest.MonkeyPatch, nack_once: bytes = b""
) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Run the stock streaming pull; show the data of what it was handed."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.address)
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    to_nack = {nack_once}

    def handle(message: Message) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, message.data)
        if message.data in to_nack:
            to_nack.clear()
            message.nack()
        else:
            message.ack()

    client = SubscriberClient()
    pulling = client.subscribe(name, handle)

    def end() -> None:
        pulling.cancel()
        pulling.result(timeout=PATIENCE)
        client.close()

    try:
        async with asyncio.timeout(PATIENCE):
            yield arrived
    finally:
        await asyncio.to_thread(end)
