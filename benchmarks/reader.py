"""Reads a subscription, as consumers would, and tells at the end what it has had: `python -m benchmarks.reader NAME`.

It is asked with a line of JSON: how many messages it shall have had before it answers, and for how many seconds it
waits for them. Where its input ends without that, so does the program. A stream that ends before is an error.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.types import StreamingPullRequest

from benchmarks.contest import answer, say_ready
from relay.brokers.pubsub_client import PubSubAddress
from relay.settings import load

# What each event has, whoever publishes it.
ATTRIBUTES = ("event_id", "event_type", "aggregate_type", "aggregate_id", "created_at", "sequence")


@dataclass
class Tally:
    """What has arrived so far: as little work as may be, as it is done beside whoever is measured."""

    messages: int = 0
    incomplete: int = 0
    events: set[str] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    wanted: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, messages: int) -> None:
        """From now on, so many are enough."""
        self.wanted = messages
        self._look()

    def add(self, message: Any) -> None:
        """Count one."""
        attributes = message.attributes
        self.messages += 1
        self.incomplete += not all(map(attributes.__contains__, ATTRIBUTES))
        self.events.add(attributes.get("event_id", ""))
        self.sizes.add(len(message.data))
        self._look()

    def _look(self) -> None:
        if self.messages >= self.wanted:
            self.enough.set()
        else:
            self.enough.clear()


async def read(client: SubscriberAsyncClient, subscription: str, tally: Tally) -> None:
    """Read and acknowledge over one stream, as fast as the emulator gives, until the stream ends."""
    requests: asyncio.Queue[StreamingPullRequest] = asyncio.Queue()
    requests.put_nowait(StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=600))

    async def asked() -> AsyncIterator[StreamingPullRequest]:
        while True:
            yield await requests.get()

    async for response in await client.streaming_pull(requests=asked()):
        raw = type(response).pb(response).received_messages
        for each in raw:
            tally.add(each.message)
        requests.put_nowait(StreamingPullRequest(ack_ids=[each.ack_id for each in raw]))


async def questions() -> asyncio.StreamReader:
    """The lines of its input. Nobody waits for them in a thread, which would outlive a stream that ends."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


async def main(name: str) -> None:
    """Read from the first word on; answer when asked."""
    settings = load()
    address = PubSubAddress(settings.require_project(), emulator=settings.pubsub_emulator_host)
    tally, lines = Tally(), await questions()
    async with address.subscriber() as client:
        say_ready()
        await lines.readline()
        reading = asyncio.create_task(read(client, address.subscription(name), tally))
        asking = asyncio.create_task(lines.readline())
        await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
        question = asking.result() if asking.done() else b""
        if question:
            wanted = json.loads(question)
            tally.want(wanted["messages"])
            enough = asyncio.create_task(tally.enough.wait())
            await asyncio.wait({reading, enough}, timeout=wanted["seconds"], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            raise SystemExit(f"the stream of {name} has ended: {reading.exception()}")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    if question:
        smallest, largest = min(tally.sizes, default=0), max(tally.sizes, default=0)
        told = {"messages": tally.messages, "events": len(tally.events), "incomplete": tally.incomplete}
        answer(**told, smallest=smallest, largest=largest)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
