"""The lock of a job, and the connection that has it: a run goes on for as long as both are there."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

from relay.kernel.clock import SystemClock
from relay.kernel.observe import PassFinished
from relay.postgres.connect import connect_async
from relay.upkeep.events import RunEnded, RunSkipped, Status
from relay.upkeep.holding import PING_SECONDS, Holding
from relay.upkeep.run import Run
from tests.support.jobs import Held, Replica, connecting, counted, job_of, runs, statuses
from tests.support.pooler import pooled_url
from tests.support.proxy import postgres_proxy
from tests.support.waiting import until_async

HOLDERS = """
    select pid from pg_locks
     where locktype = 'advisory' and granted
       and database = (select oid from pg_database where datname = current_database())
"""
KEPT_ALIVE = """
    select current_setting('tcp_keepalives_idle')::int, current_setting('tcp_keepalives_interval')::int,
           current_setting('tcp_keepalives_count')::int,
           current_setting('tcp_user_timeout')::int
"""


NAMED = "select pg_advisory_xact_lock(hashtextextended('worker:scheduler:ingest', hashtextextended('public', 0)))"


class Hasty(SystemClock):
    """Lets a lock be asked for again soon: an answer has all of its time, however busy the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for a part of the time."""
        self.waits += 1
        return await super().wait(event, seconds / 100)


def holders(url: str) -> list[int]:
    """Which sessions have a job's lock."""
    with psycopg.connect(url) as connection:
        return [pid for (pid,) in connection.execute(HOLDERS).fetchall()]


def terminate(url: str) -> None:
    """End those sessions, as an operator would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"select pg_terminate_backend(pid) from ({HOLDERS}) as holders")  # noqa: S608


async def test_a_lock_that_is_lost_ends_the_run_at_once(database: str) -> None:
    """The job is cancelled, and its row says why; the next slot is anybody's."""
    held = Held()
    async with Replica(database, job_of(held)) as one, Replica(database, job_of(counted), skew=3600.0) as other:
        running = asyncio.create_task(one.run_once())
        await held.began.wait()
        loop = asyncio.get_running_loop()
        began = loop.time()
        terminate(database)
        report = await running
        # Not by the next ping, which would be five seconds after the last one.
        assert loop.time() - began < PING_SECONDS - 1.0
        assert (report.processed, report.errors, held.cancelled) == (1, 1, 1)
        (ended,) = one.of(RunEnded)
        assert (ended.status, type(ended.error)) == (Status.LOST, psycopg.errors.AdminShutdown)
        assert (await other.run_once()).processed == 1
    assert statuses(database) == ["lost", "done"]


async def test_a_lock_is_known_by_the_name_of_its_job(database: str) -> None:
    """Whoever else takes `worker:scheduler:ingest` keeps the job from running."""
    with psycopg.connect(database) as connection:
        connection.execute(NAMED)
        assert await Holding.take(connecting(database), "public", "ingest", SystemClock()) is None
        digest = await Holding.take(connecting(database), "public", "digest", SystemClock())
    assert digest
    await digest.release()


def test_a_lock_is_asked_for_as_often_as_it_is_said() -> None:
    """A run is stopped within two of these of the end of its lock."""
    assert PING_SECONDS == 5.0


async def test_another_run_that_began_since_does_not_hide_that_the_lock_was_lost(database: str) -> None:
    """Whoever comes next takes the one before for killed; that one knows better."""
    held = Held()
    async with Replica(database, job_of(held)) as one, Replica(database, job_of(counted), skew=3600.0) as other:

        async def stubborn() -> None:
            await held.began.wait()
            terminate(database)
            assert (await other.run_once()).processed == 1

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.run_once())
            tasks.create_task(stubborn())
    assert sorted(statuses(database)) == ["done", "lost"]


async def test_a_lock_whose_server_is_not_heard_any_more_is_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may end without a word: the next ping has no answer."""
    monkeypatch.setattr("relay.upkeep.holding.PING_SECONDS", 2.0)
    held = Held()
    with postgres_proxy(database) as (proxy, url):
        # The session first, and then the lock's.
        ways = iter((database, url))

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await connect_async(next(ways))

        async with Replica(database, job_of(held), connect=connect, clock=Hasty()) as replica:
            running = asyncio.create_task(replica.run_once())
            await held.began.wait()
            proxy.freeze()
            assert (await running).errors == 1
            (ended,) = replica.of(RunEnded)
            assert (ended.status, str(ended.error)) == (Status.LOST, "the database did not answer within 2 s")
            assert ended.seconds < 20.0  # keepalives take 25
            assert held.cancelled == 1
    assert statuses(database) == ["lost"]


async def test_pings_keep_the_lock(database: str) -> None:
    """However long the run: the server's limits for idle transactions do not hold for it."""
    clock = Hasty()

    async def connect() -> psycopg.AsyncConnection[Any]:
        connection = await connect_async(database)
        await connection.execute("set idle_in_transaction_session_timeout = '1ms'")
        if connection.info.server_version >= 170_000:
            await connection.execute("set transaction_timeout = '20ms'")
        return connection

    held = Held()
    async with Replica(database, job_of(held), connect=connect, clock=clock) as replica:
        running = asyncio.create_task(replica.run_once())

        async def several() -> bool:
            return clock.waits > 5

        await until_async(several, "it is pinged")
        held.let_go.set()
        assert (await running).errors == 0
    assert statuses(database) == ["done"]


async def test_a_lock_writes_nothing_and_holds_up_no_vacuum(database: str) -> None:
    """Its transaction has neither an xid nor a snapshot, and its server looks whether its peer is there."""
    holding = await Holding.take(connecting(database), "public", "ingest", SystemClock())
    assert holding
    with psycopg.connect(database) as connection:
        (pid,) = holders(database)
        row = connection.execute(
            "select backend_xid, backend_xmin, state from pg_stat_activity where pid = %s", (pid,)
        ).fetchone()
    assert row == (None, None, "idle in transaction")
    ((limits,),) = await holding._wire.say(KEPT_ALIVE)
    idle, interval, count, timeout = limits
    assert idle + interval * count <= 25
    assert timeout == 25_000
    await holding.release()
    assert holders(database) == []


async def test_what_a_vanished_run_had_open_is_not_open_for_longer_than_its_lock(database: str) -> None:
    """The next run would begin, and wait for its rows."""

    async def asking(run: Run) -> None:
        async with run.transaction() as connection:
            limits.append(await (await connection.execute(KEPT_ALIVE.encode())).fetchone())

    limits: list[Any] = []
    async with Replica(database, job_of(asking)) as replica:
        assert (await replica.run_once()).errors == 0
    ((idle, interval, count, timeout),) = limits
    assert idle + interval * count <= 25
    assert timeout == 25_000


async def test_behind_a_pooler_nothing_is_set_or_prepared_for_good(database: str) -> None:
    """Its sessions are others' as well; that the lock keeps one for as long as a job takes is what a pooler does."""
    made: list[psycopg.AsyncConnection[Any]] = []
    held = Held()
    with pooled_url(database) as url:

        async def connect() -> psycopg.AsyncConnection[Any]:
            made.append(await connect_async(url))
            return made[-1]

        async with Replica(url, job_of(held), connect=connect) as replica:
            running = asyncio.create_task(replica.run_once())
            await held.began.wait()
            assert len(holders(database)) == 1
            held.let_go.set()
            assert (await running).processed == 1
            assert (await replica.run_once()).processed == 0
            session, _ = made
            for question, answer in (
                ("show enable_seqscan", "on"),
                ("show statement_timeout", "0"),
                ("select count(*)::text from pg_prepared_statements", "0"),
            ):
                assert await (await session.execute(question.encode())).fetchone() == (answer,)
        assert all(connection.closed for connection in made)
    assert (statuses(database), holders(database)) == (["done"], [])


async def test_replicas_run_each_slot_once_and_on_time(database: str) -> None:
    """Each sleeps until a slot, and asks once; the one that is first runs it."""
    replicas = [Replica(database, job_of(counted, every="1s")) for _ in range(3)]
    async with AsyncExitStack() as opened:
        for replica in replicas:
            await opened.enter_async_context(replica.running())

        async def several() -> bool:
            return sum(len(replica.of(RunEnded)) for replica in replicas) >= 3

        await until_async(several, "three slots ran")
    slots = [run["slot"] for run in runs(database)]
    assert slots == sorted(set(slots))
    assert not any(replica.of(RunSkipped) for replica in replicas)
    # The first made up for a slot that was over. That a machine stalls makes one late, and not all of them.
    late = [(run["started_at"] - run["slot"]).total_seconds() for run in runs(database)[1:]]
    assert 0 <= min(late) < 0.2
    # One for each slot and replica, and one more as they began.
    asked = sum(len(replica.of(PassFinished)) for replica in replicas)
    assert asked <= len(replicas) * ((slots[-1] - slots[0]).total_seconds() + 2)


async def test_a_job_that_holds_up_its_process_keeps_its_lock(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings are late, and their answers are there before anybody can read them: nothing is lost by that."""

    async def heavy(run: Run) -> None:
        monkeypatch.setattr("relay.upkeep.holding.PING_SECONDS", 0.02)
        for _ in range(12):
            run.count("parts")
            # Longer than the server needs for an answer, beside whatever it does.
            time.sleep(0.2)  # noqa: ASYNC251 -- that is the point
            await asyncio.sleep(0)

    clock = Hasty()
    async with Replica(database, job_of(heavy), clock=clock) as replica:
        assert (await replica.run_once()).errors == 0
    assert clock.waits > 0
    assert statuses(database) == ["done"]
