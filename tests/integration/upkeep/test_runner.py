"""Jobs on a real Postgres: one run a slot, whoever and however many want it."""

import asyncio
import os
import re
import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from relay.errors import ConfigurationError, SchemaError
from relay.upkeep.events import RunBegan, RunDeaf, RunEnded, RunSkipped, RunUnrecorded, Status
from relay.upkeep.holding import Holding
from relay.upkeep.jobs import Job
from relay.upkeep.run import Run
from tests.support.jobs import Held, Replica, connecting, counted, job_of, runs, statuses
from tests.support.waiting import until_async


def schedule(url: str, job: str = "ingest") -> datetime | None:
    """The last slot that was taken."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select last_slot from relay_schedule where name = %s", (job,)).fetchone()
    return row[0] if row else None


async def test_of_two_replicas_one_runs_a_slot(database: str) -> None:
    """A new job runs at once, and is written down."""
    async with Replica(database, job_of(counted)) as one, Replica(database, job_of(counted)) as other:
        reports = await asyncio.gather(one.run_once(), other.run_once())
        assert sorted(report.processed for report in reports) == [0, 1]
        assert [report.skipped for report in reports] == [0, 0]
        assert [(await each.run_once()).processed for each in (one, other)] == [0, 0]
        (began,) = one.of(RunBegan) + other.of(RunBegan)

    (run,) = runs(database)
    assert (run["status"], run["counters"], run["errors"], run["error"]) == ("done", {"rows": 3}, 0, None)
    assert (run["job"], run["slot"], run["worker"]) == (began.job, began.slot, began.worker)
    assert run["slot"] == schedule(database)
    assert re.fullmatch(
        rf"ingest:{re.escape(socket.gethostname())}:{os.getpid()}:[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}",
        run["worker"],
    )


async def test_of_missed_slots_the_latest_is_made_up_for(database: str) -> None:
    """And a slot is not made up for twice."""
    async with Replica(database, job_of(counted)) as replica:
        await replica.run_once()
        replica.skew = 10 * 3600.0
        assert [(await replica.run_once()).processed for _ in range(3)] == [1, 0, 0]
        _, began = replica.of(RunBegan)
    assert timedelta(0) <= datetime.now(UTC) + timedelta(hours=10) - began.slot < timedelta(hours=1, minutes=1)
    assert len(runs(database)) == 2


async def test_a_machine_that_slept_makes_up_for_the_latest_slot_alone(database: str) -> None:
    """By its own clock no time has passed, and a slot that is long over is due: the database knows better."""
    async with Replica(database, job_of(counted, every="1s")) as replica:
        await replica.run_once()
        replica.skew = 3600.0
        slept = await replica.due()
        assert (await replica.run_once()).processed == 1
        began = replica.of(RunBegan)[-1]
    assert began.slot > slept + timedelta(minutes=59)
    assert len(runs(database)) == 2


async def test_a_new_cron_job_waits_for_its_first_slot(database: str) -> None:
    """What it names of the past is not made up for."""
    async with Replica(database, job_of(counted, cron="0 * * * *")) as replica:
        assert [(await replica.run_once()).processed for _ in range(2)] == [0, 0]
    async with Replica(database, job_of(counted, cron="0 * * * *"), skew=3600.0) as replica:
        assert [(await replica.run_once()).processed for _ in range(2)] == [1, 0]
        (began,) = replica.of(RunBegan)
    assert began.slot.minute == 0


async def test_a_slot_whose_lock_is_held_is_skipped(database: str) -> None:
    """The run before goes on elsewhere: this slot is not made up for, and said to be skipped."""
    async with Replica(database, job_of(counted)) as replica:
        holding = await Holding.take(connecting(database), "public", "ingest", replica.clock)
        assert holding
        report = await replica.run_once()
        assert (report.processed, report.skipped, report.errors) == (0, 1, 0)
        (skipped,) = replica.of(RunSkipped)
        assert (skipped.job, skipped.slot) == ("ingest", schedule(database))
        await holding.release()
        assert (await replica.run_once()).processed == 0
    assert runs(database) == []


async def test_a_slot_whose_lock_cannot_be_asked_for_is_tried_again(database: str) -> None:
    """The database takes no further connection just now: the slot is ours already, and nobody else takes it."""
    refused = 1

    async def connect() -> "psycopg.AsyncConnection[object]":
        nonlocal refused
        connections.append(1)
        if len(connections) == 2 and refused:
            refused = 0
            raise psycopg.OperationalError("sorry, too many clients already")
        return await connecting(database)()

    connections: list[int] = []
    async with Replica(database, job_of(counted), connect=connect) as replica:
        with pytest.raises(psycopg.OperationalError):
            await replica.run_once()
        taken = schedule(database)
        assert taken
        assert (await replica.run_once()).processed == 1
        assert (await replica.run_once()).processed == 0
    (run,) = runs(database)
    assert run["slot"] == taken


async def test_what_a_job_raises_is_written_without_its_values(database: str) -> None:
    """Its own faults are counted, and the one that ended it."""

    async def ingest(run: Run) -> None:
        run.fault(LookupError("a source"), "source")
        raise ValueError("no such key: 'sam@example.org'")

    async with Replica(database, job_of(ingest)) as replica:
        report = await replica.run_once()
        assert (report.processed, report.errors) == (1, 2)
        (ended,) = replica.of(RunEnded)
        assert (ended.status, ended.errors) == (Status.FAILED, 2)
    (run,) = runs(database)
    assert (run["status"], run["errors"], run["error_code"]) == ("failed", 2, "ValueError")
    assert run["error"].startswith("ValueError: no such key")
    assert "sam" not in run["error"]


async def test_the_last_fault_of_a_run_that_is_done_is_kept(database: str) -> None:
    """With what it is of: whoever reads the history learns what is wrong."""

    async def ingest(run: Run) -> None:
        run.fault(LookupError("a source"), "coast")
        run.fault(OSError(28, "No space left on device"), "alps")

    async with Replica(database, job_of(ingest)) as replica:
        await replica.run_once()
    (run,) = runs(database)
    assert (run["status"], run["errors"], run["error_code"]) == ("done", 2, "OSError")
    assert run["error"] == "alps: OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), BaseExceptionGroup("all", [SystemExit()])])
async def test_no_job_ends_its_process(database: str, error: BaseException) -> None:
    """Whatever it raises is its own failure."""

    async def ingest(_: Run) -> None:
        raise error

    async with Replica(database, job_of(ingest)) as replica:
        assert (await replica.run_once()).errors == 1
    assert statuses(database) == ["failed"]


async def test_a_job_that_takes_too_long_is_cancelled(database: str) -> None:
    """With what it had counted; its lock is free as soon as it has ended."""
    held = Held()
    async with Replica(database, job_of(held, timeout="1s")) as replica:
        report = await replica.run_once()
        assert (report.processed, report.errors) == (1, 1)
        assert held.cancelled == 1
    (run,) = runs(database)
    assert (run["status"], run["error_code"], run["error"]) == (
        "timed_out",
        "TimeoutError",
        "TimeoutError: not done within 1 s",
    )
    assert run["counters"] == {"begun": 1}


async def test_a_pass_is_never_longer_than_its_budget(database: str) -> None:
    """As in a tick, of which less is left than the job might take."""
    held = Held()
    async with Replica(database, job_of(held)) as replica:
        await replica.run_once(seconds=0.2)
    assert statuses(database) == ["timed_out"]


async def test_the_end_of_the_process_is_told_and_then_cancels(database: str) -> None:
    """A job that looks can stop by itself; one that does not is cancelled, and has its row."""
    held = Held()
    async with Replica(database, job_of(held)) as replica:
        running = asyncio.create_task(replica.run_once())
        await held.began.wait()
        assert held.run
        assert not held.run.stopping
        replica.stopping.set()
        assert held.run.stopping
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (ended,) = replica.of(RunEnded)
        assert (ended.status, ended.error) == (Status.CANCELLED, None)
        free = await Holding.take(connecting(database), "public", "ingest", replica.clock)
        assert free
        await free.release()
        assert (await replica.run_once()).processed == 0
    assert statuses(database) == ["cancelled"]


async def test_a_job_that_ignores_its_cancellation_keeps_its_lock(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody begins another one beside it; that it does not end is told."""
    monkeypatch.setattr("relay.upkeep.execution.DEAF_SECONDS", 0.05)
    release = asyncio.Event()

    async def deaf(_: Run) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with Replica(database, job_of(deaf, timeout="1s")) as replica, AsyncExitStack() as ending:
        ending.callback(release.set)  # also where an assertion fails: nothing else ends it
        running = asyncio.create_task(replica.run_once(seconds=0.1))

        async def told() -> bool:
            return bool(replica.of(RunDeaf))

        await until_async(told, "it is told of")
        assert await Holding.take(connecting(database), "public", "ingest", replica.clock) is None
        assert statuses(database) == ["running"]
        running.cancel()
        await asyncio.wait({running}, timeout=0.1)
        assert not running.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [event.status for event in replica.of(RunDeaf)] == [Status.TIMED_OUT]
    assert statuses(database) == ["timed_out"]


async def test_runs_that_ended_without_a_word_are_marked_by_the_next(database: str) -> None:
    """Of the same job, and of no other."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into relay_runs (job, slot, worker) values ('ingest', now(), 'a'), ('other', now(), 'b')"
        )
    async with Replica(database, job_of(counted)) as replica:
        await replica.run_once()
    assert [(run["job"], run["status"], run["finished_at"] is None) for run in runs(database)] == [
        ("ingest", "killed", False),
        ("other", "running", True),
        ("ingest", "done", False),
    ]


async def test_a_job_runs_without_its_history(database: str) -> None:
    """The table is not there, or full, or locked: the job does its work, and that it is not written down is told."""
    with psycopg.connect(database) as connection:
        connection.execute("alter table relay_runs rename to elsewhere")
    async with Replica(database, job_of(counted)) as replica:
        assert (await replica.run_once()).processed == 1
        assert len(replica.of(RunUnrecorded)) == 1
        (ended,) = replica.of(RunEnded)
        assert ended.status is Status.DONE


async def test_counters_that_cannot_be_kept_are_kept_as_far_as_can_be(database: str) -> None:
    """A number of five thousand digits is no JSON, nor is half a character: the run has its end all the same."""

    async def ingest(run: Run) -> None:
        run.count("half \ud800")

    async def large(run: Run) -> None:
        run.count("many", 10**5_000)
        run.count("few", -(10**5_000))

    for work in (ingest, large):
        async with Replica(database, job_of(work, name=work.__name__)) as replica:
            assert (await replica.run_once()).processed == 1
            assert not replica.of(RunUnrecorded)
            assert (await replica.run_once()).processed == 0
    assert [(run["status"], run["counters"]) for run in runs(database)] == [
        ("done", {"half \ufffd": 1}),
        ("done", {"many": 2**63 - 1, "few": 1 - 2**63}),
    ]


async def test_a_schema_without_these_tables_is_named(database: str) -> None:
    """With what to do about it; the next pass finds them, where somebody did."""
    with psycopg.connect(database) as connection:
        connection.execute("alter table relay_schedule rename to elsewhere")
    async with Replica(database, job_of(counted)) as replica:
        with pytest.raises(
            SchemaError,
            match=r"which RELAY_SCHEMA names, has no table relay_schedule: jobs need version 6 .* relay migrate",
        ):
            await replica.run_once()
        with psycopg.connect(database) as connection:
            connection.execute("alter table elsewhere rename to relay_schedule")
        assert (await replica.run_once()).processed == 1


async def test_a_role_without_rights_is_told_what_it_needs(database: str) -> None:
    """In the words of the command that gives them."""

    async def connect() -> "psycopg.AsyncConnection[object]":
        connection = await connecting(database)()
        await connection.execute("set role pg_monitor")
        return connection

    async with Replica(database, job_of(counted), connect=connect) as replica:
        with pytest.raises(ConfigurationError, match=r"permission denied for table relay_schedule; .* relay grants"):
            await replica.run_once()


async def test_jobs_of_two_schemas_do_not_exclude_each_other(database: str) -> None:
    """Each has slots of its own, and so locks of its own."""
    with psycopg.connect(database) as connection:
        connection.execute("create schema elsewhere")
    clock = Replica(database, job_of(counted)).clock
    here = await Holding.take(connecting(database), "public", "ingest", clock)
    there = await Holding.take(connecting(database), "elsewhere", "ingest", clock)
    assert here
    assert there
    await here.release()
    await there.release()


async def test_a_job_is_a_runner_of_its_name() -> None:
    """With a bound of its own, whatever others have."""
    replica = Replica("", job_of(counted, timeout="2h"))
    assert replica.runner.name == "job:ingest"
    assert replica.runner.seconds > 7200
    assert isinstance(next(iter(replica.jobs)), Job)
