"""Google Pub/Sub, spoken through the asynchronous client's transport with our own deadlines."""

from collections.abc import Sequence

from google.pubsub_v1.types import PublishRequest

from relay.brokers.broker import RequestLimits
from relay.brokers.pubsub_client import PubSubAddress, sending
from relay.envelope import Message

# The class that protobuf made; the wrappers around it and its messages cost ten times as much a message.
_RawRequest = PublishRequest.pb()

_LIMITS = RequestLimits(messages=1_000, size_bytes=9_000_000)


class PubSub:
    """A Broker that publishes to topics of one project."""

    limits = _LIMITS

    def __init__(self, address: PubSubAddress) -> None:
        self._address = address
        self._client = address.publisher()
        self._send = sending(self._client)

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Hand over one request, all of it or nothing, and return the service's ids in order."""
        place = self._address.topic(topic)
        return await self._send(place, _request(place, messages), seconds)

    async def close(self) -> None:
        """Close the channel."""
        await self._client.transport.close()  # type: ignore[no-untyped-call]


def _request(topic: str, messages: Sequence[Message]) -> bytes:
    """As it travels: what it was made of takes twice as much memory, and is gone before the answer comes."""
    request = _RawRequest(topic=topic)
    for message in messages:
        # Made in its place, and its attributes one by one: given all at once, protobuf copies them.
        attributes = request.messages.add(data=message.body, ordering_key=message.ordering_key).attributes
        for name, value in message.attributes.items():
            attributes[name] = value
    serialized: bytes = request.SerializeToString()
    return serialized
