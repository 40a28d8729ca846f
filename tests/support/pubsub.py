"""A broker's other side, for tests: topics, subscriptions, and what arrived on them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import PubsubMessage, PullRequest

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
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        self._publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=self._channel))
        self._subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=self._channel))

    async def open(self, *, ordered: bool = False, ack_deadline: int = 60) -> Channel:
        """Create a topic with a subscription; answer with their short names."""
        name = f"t-{uuid4().hex}"
        topic = f"projects/{PROJECT_ID}/topics/{name}"
        subscription = f"projects/{PROJECT_ID}/subscriptions/{name}"
        await self._publisher.create_topic(name=topic, timeout=SECONDS)
        await self._subscriber.create_subscription(
            request={
                "name": subscription,
                "topic": topic,
                "ack_deadline_seconds": ack_deadline,
                "enable_message_ordering": ordered,
            },
            timeout=SECONDS,
        )
        return Channel(name, name)

    async def publish(self, channel: Channel, messages: Iterable[PubsubMessage]) -> None:
        """Publish messages past the relay."""
        topic = f"projects/{PROJECT_ID}/topics/{channel.topic}"
        await self._publisher.publish(topic=topic, messages=list(messages), timeout=SECONDS)

    async def drain(self, channel: Channel) -> list[PubsubMessage]:
        """Take and acknowledge everything that waits on the subscription now."""
        subscription = f"projects/{PROJECT_ID}/subscriptions/{channel.subscription}"
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
        await set_faults(self.address, Fault(code, method=method))

    async def heal(self) -> None:
        """End every fault."""
        await set_faults(self.address)

    async def close(self) -> None:
        """Close the channel, and leave no fault behind."""
        await self.heal()
        await self._channel.close()


def event_ids(messages: Iterable[Any]) -> list[str]:
    """The messages' event ids, in order of arrival."""
    return [message.attributes["event_id"] for message in messages]
