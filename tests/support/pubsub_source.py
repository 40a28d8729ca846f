"""A subscription of an emulator in the test's own process, and the source that reads it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import PubsubMessage, PullRequest

import consumers
from consumers.delivery import Delivery
from consumers.sources.pubsub import PubSubSource
from relay.brokers.pubsub_client import PubSubAddress
from relay.dev.pubsub import PubSubEmulator
from relay.kernel.backoff import Delay
from tests.support.waiting import until_async

PROJECT = "at-test"
NAME = "orders"
SECONDS = 20.0

Event = TypeVar("Event")


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """What it shows."""
        return self.now


class Reader:
    """The source at work: what it handed over, what it told, and the service that it reads from."""

    def __init__(self, emulator: PubSubEmulator, clock: Clock, **settings: Any) -> None:
        self.emulator = emulator
        self.clock = clock
        self.address = PubSubAddress(PROJECT, emulator=emulator.address)
        self.publisher = self.address.publisher()
        self.subscriber = self.address.subscriber()
        self.got: list[Delivery] = []
        self.told: list[object] = []
        self.running: asyncio.Task[None] | None = None
        given: dict[str, Any] = {
            "consumer": "billing",
            "max_messages": 100,
            "max_bytes": 1 << 20,
            "observe": self.told.append,
            "monotonic": clock,
            "extend_every": 0.05,
            "linger": 0.001,
            "steady": 0.1,
            "reconnect": Delay(first=0.01, most=0.05, jitter=0.0),
        }
        self.source = PubSubSource(self.address, NAME, **(given | settings))

    @property
    def bodies(self) -> list[str]:
        """What was handed over, in order."""
        return [each.body.decode() for each in self.got]

    @property
    def leases(self) -> Any:
        """The service's own view of the subscription."""
        return self.emulator._catalog.subscription(self.address.subscription(NAME))

    async def create(self, **settings: Any) -> None:
        """Create the topic and the subscription."""
        topic = self.address.topic(NAME)
        await self.publisher.create_topic(name=topic, timeout=SECONDS)
        await self.subscriber.create_subscription(
            request={"name": self.address.subscription(NAME), "topic": topic, "ack_deadline_seconds": 60, **settings},
            timeout=SECONDS,
        )

    async def change(self, **settings: Any) -> None:
        """Change the subscription."""
        await self.subscriber.update_subscription(
            request={
                "subscription": {"name": self.address.subscription(NAME), **settings},
                "update_mask": FieldMask(paths=list(settings)),
            },
            timeout=SECONDS,
        )

    async def delete(self) -> None:
        """Delete the subscription, not the topic."""
        await self.subscriber.delete_subscription(subscription=self.address.subscription(NAME), timeout=SECONDS)

    async def publish(self, *bodies: str, key: str = "", **attributes: str) -> None:
        """Publish messages in one request."""
        messages = [PubsubMessage(data=each.encode(), ordering_key=key, attributes=attributes) for each in bodies]
        await self.publisher.publish(topic=self.address.topic(NAME), messages=messages, timeout=SECONDS)

    async def pull(self) -> list[str]:
        """What another reader is given now."""
        request = PullRequest(subscription=self.address.subscription(NAME), max_messages=1_000, return_immediately=True)
        response = await self.subscriber.transport.pull(request, timeout=SECONDS)  # type: ignore[call-arg]
        return [each.message.data.decode() for each in response.received_messages]

    def begin(self) -> None:
        """Read."""
        self.running = asyncio.ensure_future(self.source.run(self._take))

    async def end(self) -> None:
        """Read no more."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait([self.running])
            assert self.running.cancelled(), self.running.exception()
            self.running = None

    async def deliveries(self, count: int) -> list[Delivery]:
        """Wait until so many were handed over in all."""
        await self.until(lambda: len(self.got) >= count, f"{count} deliveries")
        return self.got

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; the source must go on meanwhile."""

        async def holds() -> bool:
            if self.running is not None and self.running.done():
                self.running.result()
            return condition()

        await until_async(holds, f"{what}; got {self.bodies}, told {self.told}", SECONDS)

    async def nothing_held(self) -> None:
        """Wait until the service waits for nobody."""
        await self.until(lambda: not self.leases.outstanding(), "nothing is held")

    async def pass_time(self, seconds: float) -> None:
        """Let the clock of both sides pass so many seconds, in which nothing has reason to end."""
        self.clock.now += seconds
        self.emulator.wake()
        # The next extension puts every deadline off.
        await self.until(
            lambda: (self.leases.next_event() or self.clock.now + 100) > self.clock.now + 9, "all are extended"
        )

    async def looked(self) -> None:
        """Wait until the source has looked for what is to be extended."""
        holding = self.source._holding
        looks = holding.looks
        await self.until(lambda: holding.looks > looks + 1, "it is looked for what is due")

    def of(self, kind: type[Event]) -> list[Event]:
        """What was told, of one kind."""
        return [each for each in self.told if isinstance(each, kind)]

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self.got += deliveries


@asynccontextmanager
async def reading(
    *, begin: bool = True, subscription: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Reader]:
    """A source that reads a new subscription, and has left nothing behind at the end."""
    clock = Clock()
    async with PubSubEmulator(clock=clock) as emulator:
        reader = Reader(emulator, clock, **settings)
        try:
            await reader.create(**(subscription or {}))
            await reader.source.open()
            if begin:
                reader.begin()
            yield reader
        finally:
            emulator.faults.clear()
            await reader.end()
            await reader.source.close(SECONDS)
            await reader.publisher.transport.close()  # type: ignore[no-untyped-call]
            await reader.subscriber.transport.close()  # type: ignore[no-untyped-call]
            assert left_behind() == []


def left_behind() -> list[str]:
    """Tasks of the consumers that still run."""
    ours = str(Path(consumers.__file__).parent)
    coroutines: list[Any] = [task.get_coro() for task in asyncio.all_tasks()]
    return [repr(each) for each in coroutines if each.cr_code.co_filename.startswith(ours)]
