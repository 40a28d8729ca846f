"""Batches side by side: what they share, what keeps them apart, and what one of them does to the others."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from relay.envelope import Message
from relay.errors import BrokerError
from relay.publisher.events import TopicOpened
from tests.support.bench import TOPIC, Bench
from tests.support.waiting import until_async

PATIENCE = 30.0


class Gate:
    """Holds requests until there are as many under way as it waits for, or it is opened."""

    def __init__(self, bench: Bench, wanted: int, holds: Callable[[str], bool] = lambda _: True) -> None:
        self.most = self.under_way = 0
        self.opened = asyncio.Event()
        self._wanted, self._holds, self._take = wanted, holds, bench.broker.publish
        bench.broker.publish = self._publish  # type: ignore[method-assign]

    async def two_under_way(self) -> bool:
        """Whether two requests wait here."""
        return self.under_way == 2

    async def _publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.under_way >= self._wanted:
            self.opened.set()
        try:
            if self._holds(topic):
                await asyncio.wait_for(self.opened.wait(), PATIENCE)
            return await self._take(topic, messages, seconds)
        finally:
            self.under_way -= 1


@pytest.mark.parametrize("slots", [2, 3])
async def test_a_backlog_is_published_in_as_many_batches_at_once_as_there_are_slots(bench: Bench, slots: int) -> None:
    """Each event once, whoever claims it."""
    ids = bench.emit(*range(60))
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=slots)
    gate = Gate(bench, wanted=slots)
    report = await bench.run_once(publisher)
    assert (report.processed, report.updated, gate.most) == (60, 60, slots)
    assert sorted(bench.broker.event_ids) == sorted(ids)
    assert bench.query("select count(*) from outbox_events where published_at is null") == [(0,)]


async def test_what_fits_into_a_batch_has_one_slot_and_one_connection(bench: Bench) -> None:
    """Others would find nothing."""
    bench.emit(*range(9))
    report = await bench.run_once(bench.publisher_on(bench.outbox, batch_size=10, slots=4))
    assert report.updated == 9
    assert len(bench.outbox._free) == 1


async def test_keys_that_one_slot_has_in_hand_are_passed_over_by_the_others(bench: Bench) -> None:
    """Two batches of two keys travel at once, and none of them overtakes itself."""
    for number in range(40):
        bench.emit(number, ordering_key=f"key-{number % 4}")
    publisher = bench.publisher_on(bench.outbox, batch_size=20, slots=2)
    gate = Gate(bench, wanted=4)
    assert (await bench.run_once(publisher)).updated == 40
    assert gate.most == 4
    for key in range(4):
        taken = [
            int(message.attributes["aggregate_id"])
            for _, messages in bench.broker.requests
            for message in messages
            if message.ordering_key == f"key-{key}"
        ]
        assert taken == list(range(key, 40, 4))


async def test_a_slot_whose_connection_is_lost_costs_the_others_nothing(bench: Bench) -> None:
    """What they have sent is settled, then the pass fails; what the lost one had claimed comes with the next."""
    ids = bench.emit(*range(20))
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=2)
    gate = Gate(bench, wanted=3)
    failing = asyncio.create_task(bench.run_once(publisher))
    await until_async(gate.two_under_way, "two batches travel")
    bench.query(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
        "where datname = current_database() and state = 'idle in transaction' order by xact_start limit 1"
    )
    gate.opened.set()
    with pytest.raises(Exception, match="terminating connection"):
        await failing
    ((settled,),) = bench.query("select count(*) from outbox_events where published_at is not null")
    assert settled >= 10  # the other slot may have found what the lost one had, before it noticed
    assert (await bench.run_once(publisher)).updated == 20 - settled
    assert set(bench.broker.event_ids) == set(ids)
    assert len(bench.broker.event_ids) == 30  # those of the lost one went out twice


async def test_a_cancelled_pass_gives_back_what_all_slots_have_claimed(bench: Bench) -> None:
    """Nothing of it is settled, and the next pass finds everything."""
    bench.emit(*range(20))
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=2)
    gate = Gate(bench, wanted=3)
    cancelled = asyncio.create_task(bench.run_once(publisher))
    await until_async(gate.two_under_way, "two batches travel")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    gate.opened.set()
    assert bench.query("select count(*) from outbox_events where published_at is not null") == [(0,)]
    assert (await bench.run_once(publisher)).updated == 20


async def test_two_batches_that_fail_alike_open_the_topic_once(bench: Bench) -> None:
    """It is told once, and probed once."""
    bench.emit(*range(20))
    bench.broker.refuse = lambda _: BrokerError("UNAVAILABLE", "away")
    Gate(bench, wanted=2)
    report = await bench.run_once(bench.publisher_on(bench.outbox, batch_size=10, slots=2))
    assert report.updated == 0
    assert sum(isinstance(event, TopicOpened) for event in bench.seen) == 1
    assert bench.attempts() == []


async def test_a_probe_that_hangs_holds_up_no_batch(bench: Bench) -> None:
    """Others are published while the topic that takes nothing is asked."""
    bench.emit(1, topic="slow-topic")
    publisher = bench.publisher_on(bench.outbox, batch_size=10, slots=2)
    bench.broker.refuse = lambda topic: BrokerError("NOT_FOUND", "no topic") if topic == "slow-topic" else None
    await bench.run_once(publisher)
    bench.broker.refuse = lambda _: None
    bench.later += 60  # the topic's time has come
    bench.emit(*range(2, 32))
    gate = Gate(bench, wanted=99, holds=lambda topic: topic == "slow-topic")
    running = asyncio.create_task(bench.run_once(publisher))

    async def others_are_out() -> bool:
        return sum(topic == TOPIC for topic, _ in bench.broker.requests) == 3

    await until_async(others_are_out, "the batches of the other topic are out")
    assert gate.under_way == 1
    gate.opened.set()
    assert (await running).updated == 31
