"""Reads a subscription, as consumers would, until its input ends: `python -m benchmarks.reader NAME`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from google.api_core.exceptions import GoogleAPICallError
from google.pubsub_v1.types import StreamingPullRequest

from benchmarks.contest import take_part
from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import load


async def main(name: str) -> None:
    """Read and acknowledge over one stream, as fast as the emulator gives."""
    settings = load()
    address = PubSubAddress(settings.require_project(), emulator=settings.pubsub_emulator_host)
    async with address.subscriber() as client:
        requests: asyncio.Queue[StreamingPullRequest] = asyncio.Queue()
        first = StreamingPullRequest(subscription=address.subscription(name), stream_ack_deadline_seconds=600)
        requests.put_nowait(first)

        async def asked() -> AsyncIterator[StreamingPullRequest]:
            while True:
                yield await requests.get()

        take_part()
        loop = asyncio.get_running_loop()
        ended = loop.run_in_executor(None, sys.stdin.read)

        async def read() -> None:
            with suppress(GoogleAPICallError):  # the stream ends with the emulator, or its subscription
                async for response in await client.streaming_pull(requests=asked()):
                    raw = type(response).pb(response).received_messages
                    requests.put_nowait(StreamingPullRequest(ack_ids=[each.ack_id for each in raw]))

        reading = asyncio.create_task(read())
        await ended
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
