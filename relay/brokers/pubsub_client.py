"""Where Google Pub/Sub is, the asynchronous clients that speak to it, and what their failures are called."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, RetryError, from_grpc_error
from google.api_core.gapic_v1 import routing_header
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.publisher.transports.base import DEFAULT_CLIENT_INFO
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import PublishResponse

from relay.brokers.pubsub_credentials import credentials_of
from relay.errors import BrokerError, ConfigurationError

# Sends a request to a topic, in so many seconds; answers with the service's ids in order, or raises a BrokerError.
Send = Callable[[str, bytes, float], Awaitable[tuple[str, ...]]]

# What the clients raise for a call that failed.
CALL_ERRORS = (GoogleAPIError, GoogleAuthError)

# An answer may be larger than gRPC's 4 MB: one message alone takes up to 10.
_ANY_SIZE = {"grpc.max_receive_message_length": -1}
# gRPC lets its pause between two attempts to connect grow to 120 s, and no call reaches a service that is back before
# the pause ends. The relay paces its calls itself. The last one is how long one attempt may take.
_RECONNECT = {
    "grpc.initial_reconnect_backoff_ms": 250,
    "grpc.max_reconnect_backoff_ms": 1_000,
    "grpc.min_reconnect_backoff_ms": 10_000,
}
# An emulator is on the machine, or beside it: no proxy that the environment names for the world outside leads there.
_NO_PROXY = {"grpc.enable_http_proxy": 0}
# A connection whose other end is gone without a word ends when what was sent is unacknowledged for 10 s (on Linux, as
# the last figure becomes TCP_USER_TIMEOUT): before a publish budget does. The first figure is the library's own.
_KEEPALIVE = {"grpc.keepalive_time_ms": 30_000, "grpc.keepalive_timeout_ms": 10_000}


@dataclass(frozen=True, slots=True)
class PubSubAddress:
    """A project, on an emulator, on one regional endpoint, or on the global one.

    An emulator is asked without credentials. Otherwise they are those of `key`, the content of a key file that
    `key_source` names in errors, or, without it, the application default credentials.
    """

    project: str
    emulator: str | None = None
    endpoint: str | None = None
    key: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    key_source: str = "GOOGLE_CREDENTIALS_JSON"

    def topic(self, name: str) -> str:
        """The full name of a topic that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        """The full name of a subscription that may be named by its last part."""
        return name if name.startswith("projects/") else f"projects/{self.project}/subscriptions/{name}"

    def publisher(self) -> PublisherAsyncClient:
        """A client that publishes. Raises ConfigurationError where there are no credentials."""
        if self.emulator:
            return PublisherAsyncClient(transport=_PublisherTransport(channel=_emulator_channel(self.emulator)))
        with _credentials_found():
            return PublisherAsyncClient(
                credentials=self.credentials(),
                transport=_PublisherTransport,
                client_options=ClientOptions(api_endpoint=self.endpoint),
            )

    def subscriber(self) -> SubscriberAsyncClient:
        """A client that receives. Raises ConfigurationError where there are no credentials."""
        if self.emulator:
            return SubscriberAsyncClient(transport=_SubscriberTransport(channel=_emulator_channel(self.emulator)))
        with _credentials_found():
            return SubscriberAsyncClient(
                credentials=self.credentials(),
                transport=_SubscriberTransport,
                client_options=ClientOptions(api_endpoint=self.endpoint),
            )

    def credentials(self) -> Credentials | None:
        """Those of the key; None where the library looks for them. Raises ConfigurationError where the key is none."""
        return None if self.key is None else credentials_of(self.key, self.key_source)


def sending(client: PublisherAsyncClient) -> Send:
    """Publish over the client's connection, without what surrounds each call of the client's own.

    That is retries, which are not wanted, and its wrappers around messages. It takes a tenth of a millisecond.
    """
    transport: Any = client.transport
    call = transport.grpc_channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish",
        response_deserializer=PublishResponse.pb().FromString,
    )
    about_us = DEFAULT_CLIENT_INFO.to_grpc_metadata()  # type: ignore[no-untyped-call]

    async def send(topic: str, request: bytes, seconds: float) -> tuple[str, ...]:
        where = routing_header.to_grpc_metadata({"topic": topic})  # type: ignore[no-untyped-call]
        try:
            response = await call(request, timeout=seconds, metadata=(about_us, where))
        except grpc.RpcError as error:
            raise broker_error(from_grpc_error(error)) from error  # type: ignore[no-untyped-call]
        return tuple(response.message_ids)

    return send


def broker_error(error: GoogleAPIError | GoogleAuthError) -> BrokerError:
    """Name a failed call as gRPC does, whichever library noticed it."""
    if isinstance(error, RetryError) and isinstance(error.cause, GoogleAPICallError):
        error = error.cause
    if isinstance(error, GoogleAuthError):
        return BrokerError("UNAVAILABLE" if error.retryable else "UNAUTHENTICATED", _reason(error))
    status = getattr(error, "grpc_status_code", None)
    return BrokerError(status.name if status else type(error).__name__, str(getattr(error, "message", error)))


def _reason(error: GoogleAuthError) -> str:
    """What it says first: with further arguments, such as the answer that was refused, its text is that of a tuple."""
    match error.args:
        case (GoogleAuthError() as inner, *_):
            return _reason(inner)
        case (first, *_):
            return str(first)
        case _:
            return type(error).__name__


class _PublisherTransport(PublisherGrpcAsyncIOTransport):
    """Connects with our options beside the library's, and tells no log of what is sent."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        _tell_no_log(self)

    @classmethod
    def create_channel(cls, *args: Any, **named: Any) -> grpc.aio.Channel:
        return super().create_channel(*args, **_with_our_options(named))


class _SubscriberTransport(SubscriberGrpcAsyncIOTransport):
    """Connects with our options beside the library's, and tells no log of what is received."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        _tell_no_log(self)

    @classmethod
    def create_channel(cls, *args: Any, **named: Any) -> grpc.aio.Channel:
        return super().create_channel(*args, **_with_our_options(named))


def _tell_no_log(transport: Any) -> None:
    # The library's own interceptor writes whole requests to its log at level debug, and surrounds each call with a
    # task. In a release that keeps it elsewhere, calls are a little slower.
    around = getattr(transport.grpc_channel, "_unary_unary_interceptors", [])
    around[:] = [each for each in around if each is not getattr(transport, "_interceptor", None)]


def _with_our_options(named: dict[str, Any]) -> dict[str, Any]:
    options = dict(named.get("options") or ()) | _RECONNECT | _KEEPALIVE
    return named | {"options": list(options.items())}


def _emulator_channel(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, options=list((_ANY_SIZE | _RECONNECT | _NO_PROXY).items()))


@contextmanager
def _credentials_found() -> Iterator[None]:
    try:
        yield
    except GoogleAuthError as error:
        cause = _reason(error).rstrip(".")
        raise ConfigurationError(
            f"no credentials for Google Pub/Sub: {cause}; put the content of a key file into GOOGLE_CREDENTIALS_JSON, "
            "name the file in GOOGLE_APPLICATION_CREDENTIALS, or set PUBSUB_EMULATOR_HOST to work with an emulator"
        ) from error
