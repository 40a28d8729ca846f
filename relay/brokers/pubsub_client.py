"""Where Google Pub/Sub is, and the asynchronous clients that speak to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from google.api_core.client_options import ClientOptions
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from relay.errors import ConfigurationError

# An answer may be larger than gRPC's 4 MB: one message alone takes up to 10.
_ANY_SIZE = [("grpc.max_receive_message_length", -1)]


@dataclass(frozen=True, slots=True)
class PubSubAddress:
    """A project, on an emulator, on one regional endpoint, or on the global one."""

    project: str
    emulator: str | None = None
    endpoint: str | None = None

    def topic(self, name: str) -> str:
        """The full name of a topic that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """The full name of a subscription that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/subscriptions/{name}"

    def publisher(self) -> PublisherAsyncClient:
        """A client that publishes. Raises ConfigurationError where there are no credentials."""
        if self.emulator:
            channel = grpc.aio.insecure_channel(self.emulator)
            return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
        with _credentials_found():
            return PublisherAsyncClient(client_options=ClientOptions(api_endpoint=self.endpoint))

    def subscriber(self) -> SubscriberAsyncClient:
        """A client that receives. Raises ConfigurationError where there are no credentials."""
        if self.emulator:
            channel = grpc.aio.insecure_channel(self.emulator, options=_ANY_SIZE)
            return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
        with _credentials_found():
            return SubscriberAsyncClient(client_options=ClientOptions(api_endpoint=self.endpoint))


@contextmanager
def _credentials_found() -> Iterator[None]:
    try:
        yield
    except GoogleAuthError as error:
        raise ConfigurationError(
            f"no credentials for Google Pub/Sub: {error}; name a key file in GOOGLE_APPLICATION_CREDENTIALS, "
            "or set PUBSUB_EMULATOR_HOST to work with an emulator"
        ) from error
