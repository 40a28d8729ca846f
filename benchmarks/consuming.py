"""A consumer whose handler does nothing, for so many messages: `python -m benchmarks.consuming MODE SUBSCRIPTION MANY`.

It is what `consumers run` runs, without its log. The clock begins behind the first messages, when all connections are
there; what it answers with is how many followed, and in how many seconds.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping

from benchmarks.contest import answer, take_part
from consumers import Consumer, Context, Received
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.none import NoDedup
from consumers.dedup.protocol import Dedup, Mode
from consumers.delivery import Delivery
from consumers.events import DeliverySettled
from consumers.outside import Outside
from consumers.runtime import Runtime
from consumers.sources.pubsub import PubSubSource
from idempotency import Manager, connect
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.stack import PROJECT_ID
from relay.kernel.command import spare_the_collector

FIRST = 2_000
_MAX_MESSAGES, _MAX_BYTES = 1_000, 64 * 1024 * 1024

consumer = Consumer("bench", timeout="45s")


@consumer.on("bench.event")
async def nothing(event: Received[object], ctx: Context) -> None:
    """Nothing."""


class Nowhere:
    """Dead letters that nobody expects."""

    topic = "nowhere"

    async def open(self) -> None:
        """It is always there."""

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """A handler that does nothing cannot fail."""
        raise AssertionError(f"{delivery} was refused: {attributes}")

    async def close(self) -> None:
        """It was never open."""


class Clock:
    """Begins behind the first deliveries, and ends with the last."""

    def __init__(self, many: int, done: asyncio.Event) -> None:
        self._many = many
        self._done = done
        self._settled = 0
        self._began = 0.0
        self.seconds = 0.0

    def __call__(self, event: object) -> None:
        """Count what is settled."""
        if not isinstance(event, DeliverySettled):
            return
        self._settled += 1
        if self._settled == FIRST:
            self._began = time.perf_counter()
        elif self._settled == self._many:
            self.seconds = time.perf_counter() - self._began
            self._done.set()


async def main(mode: str, subscription: str, many: int) -> None:
    """Take part in a contest."""
    address = PubSubAddress(PROJECT_ID, emulator=os.environ["PUBSUB_EMULATOR_HOST"])
    redis = connect(os.environ["REDIS_URL"])
    done = asyncio.Event()
    clock = Clock(many, done)
    source = PubSubSource(
        address, subscription, consumer="bench", max_messages=_MAX_MESSAGES, max_bytes=_MAX_BYTES, observe=clock
    )
    outside = Outside(source=source, dedup=_dedup(Mode(mode), Manager(redis)), dead_letters=Nowhere(), observe=clock)
    spare_the_collector()
    take_part()
    await Runtime(consumer, outside).run(done, 5.0)
    await redis.aclose()
    answer(events=many - FIRST, seconds=clock.seconds)


def _dedup(mode: Mode, store: Manager) -> Dedup:
    match mode:
        case Mode.NONE:
            return NoDedup()
        case Mode.MARK:
            return MarkDedup(store, "bench")
        case Mode.CLAIM:
            return ClaimDedup(store, "bench")
        case Mode.INBOX:
            raise ValueError("an inbox has a section of its own")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
