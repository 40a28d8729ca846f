"""Google Pub/Sub, spoken through the asynchronous client's transport with our own deadlines."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.errors import BrokerError, ConfigurationError

# The classes that protobuf made; the wrappers around them cost ten times as much a message.
_RawMessage = PubsubMessage.pb()
_RawRequest = PublishRequest.pb()

_LIMITS = RequestLimits(messages=1_000, size_bytes=9_000_000)


@dataclass(frozen=True, slots=True)
class PubSubAddress:
    """Where the service is: an emulator, one regional endpoint, or the global one."""

    project: str
    emulator: str | None = None
    endpoint: str | None = None

    def topic(self, name: str) -> str:
        """The full name of a topic that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """The full name of a subscription that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/subscriptions/{name}"


class PubSub:
    """A Broker that publishes to topics of one project."""

    limits = _LIMITS

    def __init__(self, address: PubSubAddress) -> None:
        self._address = address
        self._client = _connect(address)

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Hand over one request, all of it or nothing, and return the service's ids in order."""
        request = _RawRequest(
            topic=self._address.topic(topic),
            messages=[
                _RawMessage(data=message.body, attributes=message.attributes, ordering_key=message.ordering_key)
                for message in messages
            ],
        )
        try:
            response = await self._client.publish(PublishRequest.wrap(request), retry=None, timeout=seconds)
        except GoogleAPICallError as error:
            status = error.grpc_status_code
            raise BrokerError(status.name if status else type(error).__name__, error.message) from error
        except GoogleAuthError as error:
            raise BrokerError("UNAUTHENTICATED", str(error)) from error
        return tuple(response.message_ids)

    async def close(self) -> None:
        """Close the channel."""
        await self._client.transport.close()  # type: ignore[no-untyped-call]


def _connect(address: PubSubAddress) -> PublisherAsyncClient:
    if address.emulator:
        channel = grpc.aio.insecure_channel(address.emulator)
        return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
    try:
        return PublisherAsyncClient(client_options=ClientOptions(api_endpoint=address.endpoint))
    except GoogleAuthError as error:
        raise ConfigurationError(
            f"no credentials for Google Pub/Sub: {error}; name a key file in GOOGLE_APPLICATION_CREDENTIALS, "
            "or set PUBSUB_EMULATOR_HOST to work with an emulator"
        ) from error
