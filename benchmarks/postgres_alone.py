"""The loop of `benchmarks.limit` with a broker that takes everything at once: `python -m benchmarks.postgres_alone`."""

import asyncio
import time
from typing import Any, cast

from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.types import PublishRequest, PublishResponse

from benchmarks.contest import answer, take_part
from benchmarks.limit import SLOTS, drain
from relay.settings import load

_MESSAGE_ID = "1234567890123456"


class _AtOnce:
    """Takes everything, and keeps nothing."""

    async def publish(self, request: PublishRequest, **_: Any) -> PublishResponse:
        """Answer as the broker does."""
        number = len(PublishRequest.pb(request).messages)
        return PublishResponse(message_ids=[_MESSAGE_ID] * number)


async def main() -> None:
    """Take part in a contest."""
    url, client = load().require_database(), cast("PublisherAsyncClient", _AtOnce())
    take_part()
    began = time.monotonic()
    done = await asyncio.gather(*(drain(url, client, "nowhere") for _ in range(SLOTS)))
    answer(events=sum(done), seconds=time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main())
