"""Dead letters on a topic of Google Pub/Sub."""

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from consumers.dead_letters import PREFIX, bounded
from consumers.delivery import Delivery
from relay.brokers.pubsub import PubSub
from relay.brokers.pubsub_access import Access, PubSubAccess, TopicAccess
from relay.brokers.pubsub_client import PubSubAddress
from relay.envelope import Message
from relay.errors import ConfigurationError

CREATE: Final = "python -m consumers dead-letters create module:name"
# The service takes requests of this size; the rest of one is the topic's name, and the frames around the parts.
_REQUEST_BYTES = 10_000_000
_FRAME_BYTES = 64
# For each attribute: the frames around it, its name and its value, of up to 3 bytes each.
_ATTRIBUTE_FRAME_BYTES = 12
# What is given up first where a message has no room; whose it is and its key come last, for a replay needs them.
_GIVEN_UP = ("kind", "message_id", "at", "attempts", "code", "subscription", "consumer", "ordering_key")


class PubSubDeadLetters:
    """Publishes each dead letter in a request of its own, with a deadline of its own.

    Dead letters have no ordering key: one that the service refuses would hold up all that come behind it. The key that
    the message had is in the attribute `dead_letter_ordering_key`, and a replay publishes it with that again.

    Args:
        address: Where Pub/Sub is.
        topic: Its short name, or its full one.
        seconds: How long the service may take for one dead letter.
    """

    def __init__(self, address: PubSubAddress, topic: str, seconds: float = 15.0) -> None:
        self.topic = address.topic(topic)
        self._address = address
        self._seconds = seconds
        self._broker: PubSub | None = None

    async def open(self) -> None:
        """Ask whether the topic can be published to, which takes the right to publish and no other."""
        self._broker = PubSub(self._address)
        async with PubSubAccess(self._address) as asking:
            _judge(await asking.ask(self.topic, self._seconds))

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Publish it, and wait for the service's answer."""
        if self._broker is None:
            raise RuntimeError(f"dead letters of {self.topic} are sent before they were opened")
        room = _REQUEST_BYTES - _FRAME_BYTES - len(self.topic) - len(delivery.body)
        fitted = fitting(attributes, room)
        message = Message(delivery.body, fitted, len(delivery.body) + _size(fitted))
        await self._broker.publish(self.topic, [message], self._seconds)

    async def close(self) -> None:
        """Close the channel."""
        if self._broker is not None:
            await self._broker.close()


def fitting(attributes: Mapping[str, str], room: int) -> dict[str, str]:
    """As much of the attributes as there is room for, in bytes.

    The sentence of the reason is cut first, then what else was added is left out, then what was the message's own: a
    message as large as a request must not be without a place to go.
    """
    fitted = dict(attributes)
    sentence = f"{PREFIX}reason"
    if (over := _size(fitted) - room) > 0 and sentence in fitted:
        left = len(fitted[sentence].encode()) - over
        fitted[sentence] = bounded(fitted[sentence], max(left, 0))
    for name in _expendable(attributes):
        if _size(fitted) <= room:
            break
        fitted.pop(name, None)
    return fitted


def _expendable(attributes: Mapping[str, str]) -> Iterator[str]:
    yield f"{PREFIX}reason"
    added = [f"{PREFIX}{name}" for name in _GIVEN_UP]
    yield from added[:-3]
    # Its own, the largest first.
    own = [name for name in attributes if not name.startswith(PREFIX)]
    yield from sorted(own, key=lambda name: -len(name) - len(attributes[name]))
    yield from added[-3:]


def _size(attributes: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + _ATTRIBUTE_FRAME_BYTES for name, value in attributes.items())


def _judge(known: TopicAccess) -> None:
    match known.access:
        case Access.GRANTED:
            return
        case Access.UNKNOWN:
            # An emulator that hides its topics, if there is one; the first dead letter will tell.
            return
        case Access.MISSING:
            raise ConfigurationError(
                f"the dead-letter topic {known.topic} does not exist; create it, with a subscription that keeps what "
                f"is sent there, by: {CREATE}"
            )
        case Access.REFUSED:
            raise ConfigurationError(
                f"this account may not publish to the dead-letter topic {known.topic}; grant it roles/pubsub.publisher "
                "on the topic"
            )
        case Access.HIDDEN:
            raise ConfigurationError(
                f"the dead-letter topic {known.topic} does not exist, or this account may not publish to it; create "
                f"it by: {CREATE}, and grant the account roles/pubsub.publisher on it"
            )
        case _:
            assert_never(known.access)
