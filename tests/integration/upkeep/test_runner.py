"""Jobs on a real Postgres: one run a slot, whoever and however many want it."""

import asyncio

import psycopg
import pytest

from relay.upkeep.events import RunBegan, RunEnded, RunSkipped, Status
from relay.upkeep.jobs import Jobs
from relay.upkeep.run import Run
from tests.support.jobs import Replica, runs, statuses
from tests.support.waiting import until_async


def jobs_of(work: object = None, every: str = "1h", timeout: str = "10m") -> Jobs:
    """One job, named ingest."""
    jobs = Jobs()

    async def nothing(run: Run) -> None:
        run.count("rows", 3)

    jobs.every(every, name="ingest", timeout=timeout)(work or nothing)  # type: ignore[type-var]
    return jobs


async def test_of_two_replicas_one_runs_a_slot(database: str) -> None:
    """A new job runs at once, and is written down."""
    one, other = Replica(database, jobs_of()), Replica(database, jobs_of())
    reports = await asyncio.gather(one.run_once(), other.run_once())
    assert sorted(report.processed for report in reports) == [0, 1]
    assert [report.skipped for report in reports] == [0, 0]
    assert [(await each.run_once()).processed for each in (one, other)] == [0, 0]

    (run,) = runs(database)
    assert (run["status"], run["counters"], run["errors"], run["error"]) == ("done", {"rows": 3}, 0, None)
    (began,) = one.of(RunBegan) + other.of(RunBegan)
    assert (run["job"], run["slot"], run["worker"]) == (began.job, began.slot, began.worker)
    for each in (one, other):
        await each.close()
