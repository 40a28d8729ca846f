"""The consumer: a message in, one shipment out, however often the message comes."""

import asyncio
import json
from dataclasses import dataclass

import psycopg
from google.api_core.exceptions import DeadlineExceeded
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.types import PubsubMessage

from idempotency import Manager

CONSUMER = "shipping"
PULL_SECONDS = 5.0


@dataclass
class Shipping:
    """Acts on what arrives on one subscription."""

    subscriber: SubscriberAsyncClient
    publisher: PublisherAsyncClient
    topic: str
    subscription: str
    connection: psycopg.AsyncConnection
    manager: Manager
    shipped: int = 0
    recognised: int = 0

    def __post_init__(self) -> None:
        self._first: asyncio.Future[PubsubMessage] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Pull, act, acknowledge, until cancelled."""
        while True:
            try:
                response = await self.subscriber.pull(
                    subscription=self.subscription, max_messages=100, timeout=PULL_SECONDS
                )
            except DeadlineExceeded:
                continue
            for received in response.received_messages:
                await self._act(received.message)
            if ack_ids := [received.ack_id for received in response.received_messages]:
                await self.subscriber.acknowledge(subscription=self.subscription, ack_ids=ack_ids)

    async def duplicate_the_first(self) -> None:
        """Send the first message again, as a relay does that dies between the broker's answer and its commit."""
        first = await self._first
        again = PubsubMessage(data=first.data, attributes=dict(first.attributes))
        await self.publisher.publish(topic=self.topic, messages=[again])

    async def _act(self, message: PubsubMessage) -> None:
        if not self._first.done():
            self._first.set_result(message)
        if await self.manager.check_and_mark_processed(CONSUMER, message.attributes["event_id"]):
            self.recognised += 1
            return
        order = json.loads(message.data)["data"]
        async with self.connection.transaction():
            await self.connection.execute("insert into shipments values (%s)", (order["order_id"],))
        self.shipped += 1
