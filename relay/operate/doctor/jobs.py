"""Check of the jobs that these settings name: whether anybody runs them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from psycopg import errors as pg

from relay.operate.doctor.findings import Check, Finding, ok, warn
from relay.operate.doctor.look import Look
from relay.upkeep.jobs import Job

# So many slots have gone by, and so much time: a tick of Heroku Scheduler comes every ten minutes.
MOST_MISSED = 3
LONG = timedelta(minutes=15)


def jobs_check(look: Look, jobs: Sequence[Job]) -> Check:
    """The check; without jobs it says nothing."""

    async def run() -> Sequence[Finding]:
        if not jobs:
            return ()
        try:
            rows = await look.rows("jobs", jobs=[job.name for job in jobs])
        except pg.UndefinedTable:
            return (
                warn(
                    "jobs",
                    "they cannot run: the schema has no table relay_schedule, which comes with version 6",
                    "bring it up with: python -m relay migrate",
                ),
            )
        except pg.InsufficientPrivilege as error:
            return (
                warn(
                    "jobs",
                    f"they cannot run: {error.diag.message_primary}",
                    "grant the role its rights: python -m relay grants",
                ),
            )
        return judge_jobs(jobs, rows)

    return Check("jobs", run)


def judge_jobs(jobs: Iterable[Job], rows: Iterable[dict[str, Any]]) -> list[Finding]:
    """Name those whose slots go by: each has a row with its `last_slot`, None where nobody knows it yet, and `now`."""
    known = {row["job"]: row for row in rows}
    idle = [sentence for job in jobs if (sentence := _idle(job, known[job.name]))]
    if not idle:
        return [ok("jobs", f"of {len(known)} job(s) that these settings name, each has its slots taken")]
    remedy = "see that relay run, relay tick or consumers run has them, in this schema, and its log for pass_failed"
    return [warn("jobs", sentence, remedy) for sentence in idle]


def _idle(job: Job, row: dict[str, Any]) -> str:
    last_slot: datetime | None = row["last_slot"]
    now: datetime = row["now"]
    if last_slot is None:
        return f"{job.name} has never been begun"
    missed = len(list(islice(_slots(job, last_slot, now), MOST_MISSED)))
    if missed < MOST_MISSED or now - last_slot < LONG:
        return ""
    since = last_slot.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{job.name} ({job.schedule}) had its last slot at {since}, and {missed} or more have gone by"


def _slots(job: Job, after: datetime, now: datetime) -> Iterable[datetime]:
    slot = job.schedule.next_after(after)
    while slot is not None and slot <= now:
        yield slot
        slot = job.schedule.next_after(slot)
