"""A dead-letter topic of Pub/Sub: that it is there, and that whatever was received can be sent to it."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from consumers.dead_letters import attributes_of
from consumers.delivery import Delivery
from consumers.outcome import Dead
from consumers.sources.pubsub_dead_letters import PubSubDeadLetters, _judge
from relay.brokers.pubsub_access import Access, TopicAccess
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID
from relay.errors import BrokerError, ConfigurationError
from tests.support.pubsub import Channel, PubSubSide


@pytest.fixture
async def letters(pubsub: PubSubSide, channel: Channel) -> AsyncIterator[PubSubDeadLetters]:
    """The topic, open."""
    opened = PubSubDeadLetters(PubSubAddress(PROJECT_ID, pubsub.address), channel.topic, seconds=1.0)
    await opened.open()
    yield opened
    await opened.close()


def reason(delivery: Delivery, why: str = "gone") -> dict[str, str]:
    """The attributes of a dead letter."""
    return attributes_of(delivery, Dead(why), consumer="billing", subscription="orders", attempts=3)


async def test_a_dead_letter_is_the_message_without_its_key(
    pubsub: PubSubSide, channel: Channel, letters: PubSubDeadLetters
) -> None:
    """A key in which one is refused would hold up the others; it is an attribute here."""
    delivery = Delivery(body=b"body", attributes={"own": "x"}, ordering_key="k")

    await letters.send(delivery, reason(delivery))

    (message,) = await pubsub.drain(channel)
    assert (message.data, message.ordering_key) == (b"body", "")
    assert message.attributes["own"] == "x"
    assert message.attributes["dead_letter_ordering_key"] == "k"


@pytest.mark.parametrize("spare", [0, 40, 80, 200, 500, 1_000, 2_000])
async def test_a_message_as_large_as_a_request_has_somewhere_to_go(
    pubsub: PubSubSide, channel: Channel, letters: PubSubDeadLetters, spare: int
) -> None:
    """Its reason shrinks to what room there is."""
    attributes = {"event_id": "e", "own": "x" * 500}
    frames = len(letters.topic) + 64 + sum(len(name) + len(value) + 12 for name, value in attributes.items())
    delivery = Delivery(body=b"x" * (10_000_000 - frames - spare), attributes=attributes, ordering_key="k")

    await letters.send(delivery, reason(delivery, "y" * 1_000))

    (message,) = await pubsub.drain(channel)
    assert len(message.data) == len(delivery.body)
    if spare >= 80:
        assert message.attributes["dead_letter_consumer"] == "billing"
        assert message.attributes["dead_letter_ordering_key"] == "k"


async def test_a_service_that_does_not_answer_is_not_waited_for(pubsub: PubSubSide, letters: PubSubDeadLetters) -> None:
    """The delivery is held, and tried again later."""
    delivery = Delivery(body=b"body", attributes={})
    await set_faults(pubsub.address, Fault("OK", method="Publish", silent=True))

    with pytest.raises(BrokerError, match="DEADLINE_EXCEEDED"):
        await letters.send(delivery, reason(delivery))


async def test_a_topic_that_is_missing_is_told_of_with_the_command_that_creates_it(pubsub: PubSubSide) -> None:
    """Before anything is received that might have to go there."""
    missing = f"t-{uuid4().hex}"
    letters = PubSubDeadLetters(PubSubAddress(PROJECT_ID, pubsub.address), missing)

    with pytest.raises(
        ConfigurationError, match=rf"{missing} does not exist.*consumers dead-letters create module:name"
    ):
        await letters.open()
    await letters.close()


async def test_a_service_that_is_away_is_no_wrong_configuration(pubsub: PubSubSide, channel: Channel) -> None:
    """It may be back the next time."""
    await pubsub.fail("UNAVAILABLE", "GetTopic")
    with pytest.raises(BrokerError, match="UNAVAILABLE"):
        await PubSubDeadLetters(PubSubAddress(PROJECT_ID, pubsub.address), channel.topic).open()


@pytest.mark.parametrize("access", Access)
def test_what_an_account_may_not_do_is_told_with_what_it_takes(access: Access) -> None:
    """The right to publish is enough, and the only one that is asked for."""
    if access in {Access.GRANTED, Access.UNKNOWN}:
        _judge(TopicAccess("t", access))
        return
    expected = {
        Access.REFUSED: "roles/pubsub.publisher",
        Access.HIDDEN: "create it by.*and grant.*roles/pubsub.publisher",
        Access.MISSING: "dead-letters create module:name",
    }
    with pytest.raises(ConfigurationError, match=expected[access]):
        _judge(TopicAccess("t", access))
