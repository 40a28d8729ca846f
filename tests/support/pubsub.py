"""A broker's other side, for tests: topics, subscriptions, and what arrived on them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.pubsub_v1.types import PublishRequest, PublishResponse, PubsubMessage, PullRequest

from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.pubsub import Fault, set_faults
from relay.dev.stack import PROJECT_ID

SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Channel:
    """A topic of its own with one subscription attached."""

    topic: str
    subscription: str


class PubSubSide:
    """Speaks to the emulator the way an administrator and a subscriber do."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._names = PubSubAddress(PROJECT_ID, emulator=address)
        self._publisher = self._names.publisher()
        self._subscriber = self._names.subscriber()
        self._fault = Fault("UNAVAILABLE")
        self._answered = 0

    async def open(self, *, ordered: bool = False, ack_deadline: int = 60) -> Channel:
        """Create a topic with a subscription; answer with their short names."""
        name = f"t-{uuid4().hex}"
        channel = Channel(name, name)
        await self.create(channel, ordered=ordered, ack_deadline=ack_deadline)
        return channel

    async def create(self, channel: Channel, *, ordered: bool = False, ack_deadline: int = 60) -> None:
        """Create this topic and subscription."""
        topic = self._names.topic(channel.topic)
        await self._publisher.create_topic(name=topic, timeout=SECONDS)
        await self._subscriber.create_subscription(
            request={
                "name": self._names.subscription(channel.subscription),
                "topic": topic,
                "ack_deadline_seconds": ack_deadline,
                "enable_message_ordering": ordered,
            },
            timeout=SECONDS,
        )

    async def publish(self, channel: Channel, messages: Iterable[PubsubMessage]) -> None:
        """Publish messages past the relay."""
        topic = self._names.topic(channel.topic)
        await self._publisher.publish(topic=topic, messages=list(messages), timeout=SECONDS)

    async def drain(self, channel: Channel) -> list[PubsubMessage]:
        """Take and acknowledge everything that waits on the subscription now."""
        subscription = self._names.subscription(channel.subscription)
        taken: list[PubsubMessage] = []
        while True:
            # Past the client, which warns of return_immediately: on the service it may miss what a test does not.
            request = PullRequest(subscription=subscription, max_messages=1_000, return_immediately=True)
            response = await self._subscriber.transport.pull(request, timeout=SECONDS)  # type: ignore[call-arg]
            if not response.received_messages:
                return taken
            taken += [received.message for received in response.received_messages]
            await self._subscriber.acknowledge(
                subscription=subscription,
                ack_ids=[received.ack_id for received in response.received_messages],
                timeout=SECONDS,
            )

    async def fail(self, code: str, method: str = "Publish") -> None:
        """Let the emulator answer every call of the method with an error, from now on."""
        self._fault = Fault(code, method=method)
        self._answered = (await set_faults(self.address, self._fault))["answered"]

    async def has_failed(self) -> bool:
        """Whether a call has met the fault by now."""
        answered: int = (await set_faults(self.address, self._fault))["answered"]
        return answered > self._answered

    async def heal(self) -> None:
        """End every fault."""
        await set_faults(self.address)

    async def close(self) -> None:
        """Close the connections, and leave no fault behind."""
        await self.heal()
        await self._publisher.transport.close()  # type: ignore[no-untyped-call]
        await self._subscriber.transport.close()  # type: ignore[no-untyped-call]


def event_ids(messages: Iterable[Any]) -> list[str]:
    """The messages' event ids, in order of arrival."""
    return [message.attributes["event_id"] for message in messages]


class GuardedPubSub(grpc.GenericRpcHandler):
    """Takes every message, over TLS as `localhost`, and remembers who published it.

    It speaks with `private_key`, whose `certificate` a client has to trust, and keeps its port.
    """

    def __init__(self, private_key: RSAPrivateKey) -> None:
        self._private_key = private_key
        self.certificate = _certificate(private_key)
        self.port = 0
        self.authorizations: list[str] = []

    @property
    def endpoint(self) -> str:
        """What PUBSUB_ENDPOINT is set to."""
        return f"localhost:{self.port}"

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        credentials = grpc.ssl_server_credentials([(_pem(self._private_key), self.certificate)])
        self.port = self._server.add_secure_port(f"localhost:{self.port}", credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._server.stop(None)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Remember the caller, and answer."""
        metadata: dict[str, Any] = dict(handler_call_details.invocation_metadata or ())
        self.authorizations.append(metadata.get("authorization", ""))
        return grpc.unary_unary_rpc_method_handler(self._publish, PublishRequest.deserialize, PublishResponse.serialize)

    @staticmethod
    async def _publish(request: Any, _: Any) -> Any:
        return PublishResponse(message_ids=[str(number) for number, _ in enumerate(request.messages)])


def key_file(private_key: RSAPrivateKey) -> dict[str, str]:
    """The content of a service account's key file, of an account that is nobody's."""
    return {
        "type": "service_account",
        "project_id": PROJECT_ID,
        "private_key_id": "k1",
        "private_key": _pem(private_key).decode(),
        "client_email": "relay@example.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.invalid/token",
    }


def _pem(private_key: RSAPrivateKey) -> bytes:
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate(private_key: RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private_key, SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)
