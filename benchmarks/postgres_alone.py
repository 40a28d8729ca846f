"""The loop of `benchmarks.limit` with a broker that takes everything at once: `python -m benchmarks.postgres_alone`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from google.pubsub_v1.types import PublishRequest, PublishResponse

from benchmarks.limit import main
from relay.brokers.pubsub_client import PubSubAddress

_MESSAGE_ID = "1234567890123456"


class AtOnce:
    """Takes everything, and keeps nothing."""

    async def publish(self, request: PublishRequest, **_: Any) -> PublishResponse:
        """Answer as the broker does."""
        return PublishResponse(message_ids=[_MESSAGE_ID] * len(request.messages))


@asynccontextmanager
async def at_once(_: PubSubAddress) -> AsyncIterator[AtOnce]:
    """In the place of a client."""
    yield AtOnce()


if __name__ == "__main__":
    with patch.object(PubSubAddress, "publisher", at_once):
        asyncio.run(main("nowhere"))
