"""What a consumer works with, in memory: it does as it is told, and writes down what is asked of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from consumers import Consumer
from consumers.dedup.none import NoDedup
from consumers.dedup.protocol import OnLost
from consumers.delivery import Delivery
from consumers.outside import Outside
from consumers.sources.source import Demand, Facts, Take
from relay.kernel.observe import Observe

Script = Callable[[Take], Awaitable[None]]


async def nothing(_: Take) -> None:
    """A subscription on which nothing ever comes."""
    await asyncio.Event().wait()


async def ends(_: Take) -> None:
    """A subscription that ends by itself, which none does."""


def brings(*event_types: str) -> Script:
    """A subscription that brings an event of each of these types."""

    async def run(take: Take) -> None:
        take([_delivery(event_type) for event_type in event_types])
        await asyncio.Event().wait()

    return run


def _delivery(event_type: str) -> Delivery:
    event_id = str(uuid4())
    body = {
        "event_id": event_id,
        "event_type": event_type,
        "version": 1,
        "occurred_at": "2026-01-01T00:00:00Z",
        "actor": None,
        "data": None,
    }
    return Delivery(body=json.dumps(body).encode(), attributes={}, message_id=event_id)


@dataclass
class FakeSource:
    """A subscription that does what its script says."""

    name: str
    script: Script = nothing
    opening: float = 0.0
    """How many seconds it takes to look at it."""
    refusal: Exception | None = None
    acknowledged: int = 0
    given_back: int = 0
    closed: bool = False
    held_messages: int = 0
    held_bytes: int = 0

    async def open(self) -> Facts:
        """Take some time, then refuse, or not."""
        await asyncio.sleep(self.opening)
        if self.refusal:
            raise self.refusal
        return Facts(self.name, retention=timedelta(days=7))

    async def run(self, take: Take, demand: Demand) -> None:  # noqa: ARG002 -- as any source takes it
        """Follow the script."""
        await self.script(take)

    async def acknowledge(self, delivery: Delivery) -> bool:  # noqa: ARG002 -- as any source takes it
        """Count it."""
        self.acknowledged += 1
        return True

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:  # noqa: ARG002 -- as any source takes it
        """Count it."""
        self.given_back += 1

    async def close(self, seconds: float) -> None:  # noqa: ARG002 -- as any source takes it
        """Write it down."""
        self.closed = True


class FakeDeadLetters:
    """A topic that takes everything."""

    topic = "dead"

    async def open(self) -> None:
        """It is there."""

    async def send(self, delivery: Delivery, attributes: Mapping[str, str]) -> None:
        """Take it."""

    async def close(self) -> None:
        """Hold nothing."""


class WarningDedup(NoDedup):
    """Deduplication with something to say at the start."""

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:  # noqa: ARG002 -- as any takes it
        """Say it."""
        return ["careful"]


@dataclass
class FakeSupplies:
    """Hands each consumer the source that has its name; one that has none gets an empty one."""

    sources: dict[str, FakeSource] = field(default_factory=dict)

    def of(self, consumer: Consumer, observe: Observe) -> Outside:
        """What this one works with."""
        source = self.sources.setdefault(consumer.name, FakeSource(consumer.subscription))
        return Outside(source=source, dedup=WarningDedup(), dead_letters=FakeDeadLetters(), observe=observe)
