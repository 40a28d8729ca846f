"""Consumers that are killed, stopped and cut off from Redis: what was promised is counted."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from relay.dev.redis import EmbeddedRedis
from relay.dev.stack import Part, Stack
from tests.support.chaos import sized
from tests.support.consuming import Booking, Effect, booking, publish, repeated
from tests.support.pubsub import Channel, PubSubSide
from tests.support.waiting import until

EVENTS = sized(1_000, 10_000)
PROCESSES = 3
CONCURRENCY = 20
KILLS = sized(3, 20)
PAUSE_SECONDS = sized(3, 10)
# A process that was killed holds its events for as long, at the broker and in Redis.
SHORT = {"CONSUMERS_ACK_DEADLINE": "10s", "IDEMPOTENCY_LEASE": "5s"}
LONG = 240.0
# Between an effect and its completion lies one round trip to Redis. On a machine that is busy with something else it
# may take a while; no effect that is older than this when its process dies may be repeated.
WINDOW_SECONDS = 2.0
# By so much may the machine hold up an end that has its own limits; a platform gives it 25 s more.
SLOW_SECONDS = 5.0


@pytest.fixture(scope="module")
def servers() -> Iterator[Stack]:
    """A Redis that is paused and restarted, which nobody else should notice, and an emulator."""
    with Stack.start([Part.REDIS, Part.PUBSUB]) as stack:
        yield stack


@pytest.fixture
async def side(servers: Stack) -> AsyncIterator[PubSubSide]:
    """The broker, from a publisher's side."""
    side = PubSubSide(servers.pubsub_emulator_host)
    yield side
    await side.close()


@dataclass
class Site:
    """A subscription, its consumers, and the Redis between them."""

    side: PubSubSide
    channel: Channel
    dead_letters: Channel
    consumers: Booking
    redis: EmbeddedRedis

    async def publish(self, number: int, times: int = 1) -> set[UUID]:
        """Publish so many events, each as so many messages."""
        return await publish(self.side, self.channel, number, times=times)

    async def settled(self, events: set[UUID], seconds: float = LONG) -> dict[UUID, list[Effect]]:
        """Wait until every event has had its effect and nothing is held any more; none may be dead."""
        await asyncio.to_thread(self.consumers.until_done, len(events), seconds)
        found = self.consumers.effects.of_each()
        assert set(found) == events, self.consumers.said()
        assert not await self.side.drain(self.dead_letters)
        return found


@pytest.fixture
async def site(servers: Stack, side: PubSubSide, tmp_path: Path) -> AsyncIterator[Site]:
    """A subscription of its own, and no consumer yet."""
    assert servers.redis
    channel, dead_letters = await side.open(), await side.open()
    with booking(channel, dead_letters.topic, servers.environment, tmp_path) as consumers:
        yield Site(side, channel, dead_letters, consumers, servers.redis)


async def test_each_event_has_one_effect_though_each_is_delivered_twice(site: Site) -> None:
    """Three processes share a subscription on which every event comes as two messages."""
    events = await site.publish(EVENTS, times=2)
    for _ in range(PROCESSES):
        site.consumers.start()
    found = await site.settled(events)
    await asyncio.to_thread(_stopped_in_order, site.consumers)
    assert not repeated(site.consumers.effects.of_each())
    assert not await site.side.drain(site.channel), "not everything was acknowledged"
    print(f"\n{len(events)} events, {2 * len(events)} messages, {PROCESSES} processes: effects {len(found)}")  # noqa: T201 -- the figure


@pytest.mark.slow("kills processes for seconds")
@pytest.mark.timeout(400)
async def test_a_kill_repeats_only_effects_whose_completion_it_prevented(site: Site) -> None:
    """One process is killed every second; what Redis cannot close is the moment between effect and completion."""
    events = await site.publish(EVENTS, times=2)
    work = {
        "WORK_SECONDS": str(1.5 * KILLS * PROCESSES * CONCURRENCY / EVENTS),
        "CONCURRENCY": str(CONCURRENCY),
        **SHORT,
    }
    for _ in range(PROCESSES):
        site.consumers.start(**work)
    await asyncio.to_thread(until, lambda: site.consumers.effects.count() > 0, "the first effect")
    for _ in range(KILLS):
        due = time.monotonic() + 1.0
        await asyncio.to_thread(until, lambda due=due: time.monotonic() > due, "the next kill")  # type: ignore[misc]
        site.consumers.kill_one()
        site.consumers.start(**work)
    await site.settled(events)
    await asyncio.to_thread(_stopped_in_order, site.consumers)
    again = repeated(site.consumers.effects.of_each())
    outside = [each for effects in again.values() for each in effects[:-1] if not _in_the_window(each, site.consumers)]
    print(  # noqa: T201 -- the figure
        f"\n{len(events)} events delivered twice, {PROCESSES} processes, {KILLS} killed: lost 0, "
        f"repeated {sum(len(each) - 1 for each in again.values())}, all of them between an effect and its completion"
    )
    assert not outside, outside


@pytest.mark.slow("an outage of seconds")
@pytest.mark.timeout(400)
async def test_a_redis_that_hangs_repeats_and_loses_nothing(site: Site) -> None:
    """Consumers wait for it, with the effects that they had; the lease is longer."""
    events = await site.publish(EVENTS, times=2)
    processes = [site.consumers.start(WORK_SECONDS="0.05") for _ in range(PROCESSES)]
    await asyncio.to_thread(site.consumers.until_done, EVENTS // 10, LONG)
    os.kill(site.redis.pid, signal.SIGSTOP)
    try:
        due = time.monotonic() + PAUSE_SECONDS
        await asyncio.to_thread(until, lambda: time.monotonic() > due, "the end of the pause")
    finally:
        os.kill(site.redis.pid, signal.SIGCONT)
    found = await site.settled(events)
    assert [process.poll() for process in processes] == [None] * PROCESSES, "a consumer had to be restarted"
    await asyncio.to_thread(_stopped_in_order, site.consumers)
    assert not repeated(site.consumers.effects.of_each())
    print(f"\nRedis paused {PAUSE_SECONDS} s: {len(found)} events, lost 0, repeated 0, no restart")  # noqa: T201 -- the figure


@pytest.mark.slow("an outage of seconds")
@pytest.mark.timeout(400)
async def test_a_redis_that_forgets_repeats_what_is_delivered_again_and_loses_nothing(site: Site) -> None:
    """A restart without persistence: an event that was processed before, and is delivered behind it, is new again."""
    events = await site.publish(EVENTS, times=2)
    for _ in range(PROCESSES):
        site.consumers.start(WORK_SECONDS="0.05")
    await asyncio.to_thread(site.consumers.until_done, EVENTS // 10, LONG)
    stopped = time.time()
    await asyncio.to_thread(site.redis.restart)
    started = time.time()
    await site.settled(events)
    await asyncio.to_thread(_stopped_in_order, site.consumers)
    again = repeated(site.consumers.effects.of_each())
    wrong = [each for each in again.values() if len(each) > 2 or each[0].at > started or each[1].at < stopped]
    print(f"\nRedis restarted empty: {len(events)} events, lost 0, repeated {len(again)}: those it had forgotten")  # noqa: T201 -- the figure
    assert not wrong, wrong


@pytest.mark.slow("stops and starts processes for seconds")
@pytest.mark.timeout(400)
async def test_a_deploy_repeats_nothing_and_costs_no_attempt(site: Site) -> None:
    """SIGTERM under load, with handlers that are slow and a time that is too short for some of them."""
    number = EVENTS // 10
    events = await site.publish(number, times=2)
    slow = {"WORK_SECONDS": "1.5", "CONSUMERS_SHUTDOWN_MS": "1s", "CONCURRENCY": "30", **SHORT}
    for _ in range(PROCESSES):
        site.consumers.start(**slow)
    await asyncio.to_thread(site.consumers.until_done, 1, LONG)
    for _ in range(PROCESSES):
        began = time.monotonic()
        code = await asyncio.to_thread(site.consumers.stop, site.consumers.running[0], 30.0)
        took = time.monotonic() - began
        assert code == 0, site.consumers.said()
        assert took < 1.0 + 4.0 + SLOW_SECONDS, "the soft timeout, and what may follow it"
        site.consumers.start(**slow)
    found = await site.settled(events)
    await asyncio.to_thread(_stopped_in_order, site.consumers)
    assert not repeated(site.consumers.effects.of_each())
    assert {effect.attempt for effects in found.values() for effect in effects} == {1}
    print(f"\n{PROCESSES} processes replaced under load: {number} events, lost 0, repeated 0, attempts 1")  # noqa: T201 -- the figure


def _stopped_in_order(consumers: Booking) -> None:
    consumers.until_started()
    for process in list(consumers.running):
        assert consumers.stop(process, 40.0) == 0, consumers.said()


def _in_the_window(effect: Effect, consumers: Booking) -> bool:
    """Whether the effect's process was killed right behind it."""
    killed = consumers.killed.get(effect.process)
    return killed is not None and killed - effect.at < WINDOW_SECONDS
