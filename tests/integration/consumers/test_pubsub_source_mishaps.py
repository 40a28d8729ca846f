"""A source, a service at its worst, and a pipeline that does what it likes: in the end all is settled."""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from consumers.delivery import Delivery
from relay.dev.pubsub import Fault
from tests.support.pubsub_source import Reader, reading

MESSAGES = 120
KEYS = ("k1", "k2", "")
FAULTS = [
    Fault("UNAVAILABLE"),
    Fault("UNAVAILABLE", method="StreamingPull", times=1),
    Fault("INTERNAL", method="StreamingPull", times=3),
    Fault("UNAVAILABLE", method="Acknowledge", times=2),
    Fault("UNAVAILABLE", method="Acknowledge", after=True, times=2),
    Fault("DEADLINE_EXCEEDED", method="ModifyAckDeadline", times=2),
    Fault("OK", method="Acknowledge", delay_ms=30, after=True),
    Fault("OK", method="ModifyAckDeadline", delay_ms=30),
    Fault("OK", silent=True),
    Fault("INVALID_ARGUMENT", method="Acknowledge", times=1, ack_failure="TRANSIENT_FAILURE_OTHER"),
    Fault("INVALID_ARGUMENT", method="ModifyAckDeadline", times=1, ack_failure="TRANSIENT_FAILURE_OTHER"),
    Fault("PERMISSION_DENIED", method="StreamingPull", times=2),
]


class Pipeline:
    """Works on one delivery of a key after the other, and remembers what was done first in which order."""

    def __init__(self, reader: Reader, chance: random.Random) -> None:
        self.reader = reader
        self.chance = chance
        self.calm = False
        self.done: set[str] = set()
        self.first: defaultdict[str, list[str]] = defaultdict(list)
        self.lanes: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.seen = 0

    async def serve(self) -> None:
        """Work on whatever was handed over."""
        while True:
            for delivery in self.reader.got[self.seen :]:
                self.seen += 1
                task = asyncio.ensure_future(self.work(delivery))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            await asyncio.sleep(0.001)

    async def work(self, delivery: Delivery) -> None:
        """Take a while; mostly acknowledge."""
        async with self.lanes[delivery.ordering_key or delivery.message_id]:
            body = delivery.body.decode()
            for _ in range(self.chance.choice([0, 0, 0, 1, 10, 30])):
                await asyncio.sleep(0)
            if not self.calm and not delivery.ordering_key and self.chance.random() < 0.1:
                self.reader.source.give_back(delivery, self.chance.choice([0.0, 0.3, 4.0]))
                return
            if body not in self.done:
                self.first[delivery.ordering_key].append(body)
                self.done.add(body)
            await self.reader.source.acknowledge(delivery)


async def torment(reader: Reader, chance: random.Random) -> None:
    """Faults, restarts, and leaps of the clock."""
    for _ in range(25):
        match chance.randrange(6):
            case 0:
                reader.clock.now += chance.choice([1.0, 5.0, 9.0, 70.0])
                reader.emulator.wake()
            case 1:
                reader.emulator.faults.clear()
            case 2 if chance.random() < 0.3:
                await reader.emulator.stop()
                await reader.emulator.start()
            case _:
                reader.emulator.faults.set(*chance.sample(FAULTS, 2))
        await asyncio.sleep(chance.choice([0.0, 0.005, 0.02]))
    reader.emulator.faults.clear()


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_in_the_end_all_is_settled(seed: int, *, exactly_once: bool) -> None:
    """Each message is worked on, a key's for the first time in order, and nothing is held, waited for or running."""
    chance = random.Random(seed)  # noqa: S311 -- a test's
    settings = {"enable_message_ordering": True, "enable_exactly_once_delivery": exactly_once}
    async with reading(subscription=settings, deadline=10, max_messages=20, call_seconds=0.3, answer=0.3) as reader:
        pipeline = Pipeline(reader, chance)
        serving = asyncio.ensure_future(pipeline.serve())
        for number in range(0, MESSAGES, 4):
            key = KEYS[number // 4 % len(KEYS)]
            await reader.publish(*(f"{each:03}" for each in range(number, number + 4)), key=key)
        await torment(reader, chance)
        pipeline.calm = True

        def settled() -> bool:
            reader.clock.now += 0.05
            reader.emulator.wake()
            return (
                len(pipeline.done) == MESSAGES
                and not pipeline.tasks
                and not reader.leases.outstanding()
                and not reader.leases._keys
                and not reader.leases._unordered._waiting
                and not reader.leases._unordered._resting
                and not reader.source.held_messages
                and not reader.source._settling.unsaid
            )

        await reader.until(settled, "all is settled")
        serving.cancel()
        await asyncio.wait([serving])
        assert reader.source.held_bytes == 0
        for key in ("k1", "k2"):
            assert pipeline.first[key] == sorted(pipeline.first[key])
