"""A source whose deliveries are in memory: what it hands over has cost nothing since the clock began."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.ids import time_ordered
from consumers.delivery import Delivery
from consumers.sources.source import Demand, Facts, Take

EVENT_TYPE = "order.paid"
_A_BATCH = 500
_MOST_HELD = 1_000  # CONSUMERS_MAX_MESSAGES, as it comes
_DATA_BYTES = 400


def deliveries(many: int) -> list[Delivery]:
    """So many, each of an event of its own, as large as those of the peers."""
    return [_delivery(number) for number in range(1, many + 1)]


class MemorySource:
    """Hands over as many as a subscription would have outstanding."""

    name = "memory"

    def __init__(self, waiting: Sequence[Delivery]) -> None:
        self._waiting = waiting
        self._freed = asyncio.Event()
        self.held_messages = 0
        self.held_bytes = 0

    async def open(self) -> Facts:
        """There is nothing to look at."""
        return Facts(name=self.name)

    async def run(self, take: Take, demand: Demand) -> None:  # noqa: ARG002 -- it hands over what is not acknowledged yet
        """Hand over what there is, and then nothing."""
        for first in range(0, len(self._waiting), _A_BATCH):
            while self.held_messages > _MOST_HELD - _A_BATCH:
                self._freed.clear()
                await self._freed.wait()
            batch = self._waiting[first : first + _A_BATCH]
            self.held_messages += len(batch)
            take(batch)
        await asyncio.Event().wait()

    async def acknowledge(self, delivery: Delivery) -> bool:  # noqa: ARG002 -- they are alike
        """Make room for one more."""
        self.held_messages -= 1
        self._freed.set()
        return True

    def give_back(self, delivery: Delivery, delay: float = 0.0) -> None:
        """Nobody has a reason to."""
        raise AssertionError(f"{delivery} was given back for {delay} s")

    async def close(self, seconds: float) -> None:
        """It was never open."""


def _delivery(number: int) -> Delivery:
    event_id, now = str(time_ordered()), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    envelope = {
        "event_id": event_id,
        "event_type": EVENT_TYPE,
        "version": 1,
        "occurred_at": now,
        "actor": None,
        "data": {"note": "x" * (_DATA_BYTES - len('{"note": ""}'))},
    }
    attributes = {
        "event_id": event_id,
        "event_type": EVENT_TYPE,
        "aggregate_type": "order",
        "aggregate_id": str(number),
        "created_at": now,
        "sequence": str(number),
    }
    return Delivery(body=json.dumps(envelope).encode(), attributes=attributes, message_id=str(number))
