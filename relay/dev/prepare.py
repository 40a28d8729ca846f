"""Makes a fresh stack usable at once: the schema in its database, a topic with its subscriptions in its emulator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from google.api_core.exceptions import AlreadyExists, GoogleAPICallError
from google.pubsub_v1.types import Subscription, Topic

from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.stack import PROJECT_ID, Stack
from relay.errors import DevError
from relay.outbox import schema

SECONDS = 10.0


def prepare(stack: Stack, schema_name: str, topic: str, *subscriptions: str) -> None:
    """Migrate the database, and create the topic and the subscriptions unless they exist."""
    with psycopg.connect(stack.database_url) as connection:
        schema.migrate(connection, schema_name, schema.newest())
    asyncio.run(_ensure(PubSubAddress(PROJECT_ID, emulator=stack.pubsub_emulator_host), topic, subscriptions))


async def _ensure(address: PubSubAddress, topic: str, subscriptions: tuple[str, ...]) -> None:
    topic_name = address.topic(topic)
    async with address.publisher() as publisher, address.subscriber() as subscriber:
        try:
            await _unless_there(publisher.create_topic, Topic(name=topic_name))
            for name in subscriptions:
                wanted = Subscription(name=address.subscription(name), topic=topic_name, enable_message_ordering=True)
                await _unless_there(subscriber.create_subscription, wanted)
        except GoogleAPICallError as error:
            raise DevError(f"the emulator at {address.emulator} refused a topic or subscription: {error}") from error


async def _unless_there(create: Callable[..., Awaitable[Any]], wanted: Any) -> None:
    try:
        await create(wanted, timeout=SECONDS)
    except AlreadyExists:
        return
