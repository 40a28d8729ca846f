"""Published events leave the outbox when they are old; nothing else does, and no relay minds."""

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from relay.kernel.runner import Budget
from relay.operate.retention import NAME, published_events, retention_job
from relay.outbox.grants import Role
from relay.postgres.connect import connect_async
from relay.upkeep.mover import Mover
from relay.upkeep.position import Scheduled
from relay.upkeep.run import Run, Surroundings
from relay.upkeep.table import Destination
from tests.support.bench import Bench
from tests.support.moving import Hurried, asked, do, where_they_are
from tests.support.roles_of_tests import ROLES, as_relay
from tests.support.waiting import until_async

KEPT = timedelta(days=30)
# Each state, once old and once young; none of it is decided by when a row was stored.
AGED = """
    update outbox_events set created_at = created_at - interval '40 days' where id % 2 = 0;
    update outbox_events set published_at = clock_timestamp() - interval '31 days'
     where published_at is not null and id % 2 = 0;
"""
FAILED = """
    update outbox_events
       set failed_at = clock_timestamp() - interval '35 days', failure_reason = 'discarded'
     where published_at is null and id % 3 = 0
"""


async def retire(database: str, to: Destination = "nowhere") -> dict[str, int]:
    """One run of the job, as a relay; what it counted."""
    job = retention_job("public", KEPT, to)
    assert job is not None
    assert job.name == NAME
    around = Surroundings(connect=lambda: connect_async(as_relay(database)), schema="public", observe=lambda _: None)
    run = Run(job=NAME, slot=datetime.now(UTC), worker="test", around=around, stopping=asyncio.Event())
    await job.work(run)
    return dict(run.counters)


async def test_what_was_published_long_ago_goes_and_nothing_else(bench: Bench) -> None:
    """Pending and failed events stay at any age, and so does what operators did."""
    bench.emit(*range(40))
    await bench.run_once()
    bench.emit(*range(40, 60))
    do(bench.url, AGED, FAILED)
    do(
        bench.url,
        "insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type, attempt_count) "
        "select gen_random_uuid(), 'remove', 'ann', 'asked', id, event_id, 'order.paid', 0 from outbox_events "
        "where id < 5",
    )
    wanted = asked(bench.url, "select id from outbox_events where published_at is null or id % 2 = 1 order by id")

    assert await retire(bench.url) == {"moved:public.outbox_events": 20}
    assert asked(bench.url, "select id from outbox_events order by id") == wanted
    assert asked(bench.url, "select count(*) from outbox_actions") == [4]


async def test_events_go_into_the_archive_where_the_relay_may(bench: Bench) -> None:
    """With two rights more than it has, which its page names."""
    bench.emit(*range(10))
    await bench.run_once()
    do(bench.url, AGED)
    before = where_they_are(bench.url, "outbox_events")["outbox_events"]
    do(bench.url, f"create schema archive; grant usage, create on schema archive to {ROLES.name(Role.RELAY)}")
    assert await retire(bench.url, "archive") == {"moved:public.outbox_events": 5}

    after = where_they_are(bench.url, "outbox_events", "archive.outbox_events")
    assert len(after["archive.outbox_events"]) == 5
    assert sorted(after["outbox_events"] + after["archive.outbox_events"]) == before


@pytest.mark.parametrize("keys", [0, 3])
async def test_a_relay_does_not_mind_that_rows_below_its_floors_go(bench: Bench, keys: int) -> None:
    """All that it has published, or some of it: what is emitted then goes out with the next pass."""

    def emit(first: int) -> None:
        for number in range(first, first + 10):
            bench.emit(number, ordering_key=f"key-{number % keys}" if keys else None)

    emit(0)
    for _ in range(4):
        bench.later += 30
        await bench.run_once()
    do(
        bench.url,
        "update outbox_events set published_at = published_at - interval '31 days', "
        "created_at = created_at - interval '31 days' where id <> 5",
    )
    assert await retire(bench.url) == {"moved:public.outbox_events": 9}
    emit(10)
    assert (await bench.run_once()).updated == 10
    do(bench.url, "update outbox_events set published_at = '2020-01-01', created_at = '2020-01-01'")
    assert await retire(bench.url) == {"moved:public.outbox_events": 11}
    emit(20)
    assert (await bench.run_once()).updated == 10


async def test_a_drain_goes_on_beside_it(bench: Bench) -> None:
    """What is published goes at once, into nowhere: every event was published, and no pass ended before the last."""
    table = published_events("public", KEPT, "nowhere")
    stopping, moved, emitted = asyncio.Event(), 0, 0

    async def retiring() -> int:
        gone = 0
        while not stopping.is_set():
            # By a clock that is far ahead: all that is published is over.
            mover = Mover(
                table, lambda: connect_async(as_relay(bench.url)), Scheduled("public"), clock=Hurried(), before=9e9
            )
            gone += (await mover.run(Budget(math.inf, time.monotonic, stopping))).moved
        return gone

    async def is_empty() -> bool:
        return asked(bench.url, "select count(*) from outbox_events") == [0]

    task = asyncio.create_task(retiring())
    try:
        for _ in range(4):
            bench.emit(*range(500))
            emitted += 500
            while (await bench.run_once(seconds=0.2)).processed:
                pass
            assert asked(bench.url, "select count(*) from outbox_events where published_at is null") == [0]
        await until_async(is_empty, "all that was published is gone")
    finally:
        stopping.set()
        moved = await task
    assert moved == emitted


def test_without_a_retention_there_is_no_job() -> None:
    """All events are kept."""
    assert retention_job("public", timedelta(0), "nowhere") is None
