"""Whoever changes the table meanwhile: nothing is published that could not be marked then."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from relay.envelope import Message
from tests.support.bench import Bench
from tests.support.waiting import until_async

PUBLISHED = "select count(*) from outbox_events where published_at is not null"
WAITING = "select count(*) from pg_locks where relation = 'outbox_events'::regclass and not granted"
# Longer than a machine stalls, or it would end the transactions that go well.
SHORT_MS = 1_000


async def test_while_an_index_is_built_nothing_is_published(bench: Bench) -> None:
    """Its lock lets others lock rows, and not mark them: they would go out again and again for as long as it takes."""
    ids = bench.emit(*range(30))
    outbox = bench.open_outbox(idle_tx_ms=SHORT_MS)
    publisher = bench.publisher_on(outbox, batch_size=10, slots=3)
    with psycopg.connect(bench.url) as building:
        building.execute("lock table outbox_events in share mode")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await bench.run_once(publisher)
        assert bench.broker.requests == []
    assert (await bench.run_once(publisher)).updated == 30
    assert sorted(bench.broker.event_ids) == sorted(ids)
    await publisher.close()


async def test_an_index_that_waits_for_a_writer_causes_no_duplicates(bench: Bench) -> None:
    """It is in front of all who want to write to the table after it."""
    ids = bench.emit(*range(30))
    outbox = bench.open_outbox(idle_tx_ms=SHORT_MS)
    publisher = bench.publisher_on(outbox, batch_size=10, slots=3)

    def build() -> None:
        with psycopg.connect(bench.url) as connection:
            connection.execute("create index on outbox_events (aggregate_id)")

    async def waits() -> bool:
        return bench.query(WAITING) != [(0,)]

    with psycopg.connect(bench.url) as writer:
        writer.execute("update outbox_events set topic = topic where false")
        building = asyncio.create_task(asyncio.to_thread(build))
        await until_async(waits, "the index waits for the writer")
        with pytest.raises(psycopg.errors.QueryCanceled):
            await bench.run_once(publisher)
    await building
    assert (await bench.run_once(publisher)).updated == 30
    assert sorted(bench.broker.event_ids) == sorted(ids)
    await publisher.close()


async def test_an_index_of_the_claims_is_built_anew_behind_the_batch_that_has_used_it(bench: Bench) -> None:
    """Neither of the two has to give way."""
    bench.emit(*range(10))
    take = bench.broker.publish
    building: list[asyncio.Task[None]] = []

    def build_anew() -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            connection.execute("reindex index outbox_events_fresh")

    async def waits() -> bool:
        return bench.query(WAITING) != [(0,)]

    async def publish(topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        if not building:
            building.append(asyncio.create_task(asyncio.to_thread(build_anew)))
            await until_async(waits, "the index waits for the batch")
        return await take(topic, messages, seconds)

    bench.broker.publish = publish  # type: ignore[method-assign]
    assert (await bench.run_once()).updated == 10
    await building[0]
    assert bench.query(PUBLISHED) == [(10,)]
    assert len(bench.broker.event_ids) == 10
