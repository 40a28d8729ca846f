"""What docs/jobs.md shows, run as it stands there."""

import asyncio
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay.kernel.clock import SystemClock
from relay.upkeep import Jobs, Run
from relay.upkeep.run import Surroundings
from tests.support.commands import ROOT
from tests.support.jobs import Replica, connecting, counted, job_of, runs, statuses

PAGE = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
SNIPPETS: dict[str, str] = dict(re.findall(r"^```python\n# ([\w.]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(GRANTS,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

START = datetime(2026, 3, 1, tzinfo=UTC)


def run(name: str, **left_to_the_reader: Any) -> dict[str, Any]:
    """The names of a snippet."""
    names = {"Run": Run, **left_to_the_reader}
    exec(compile(SNIPPETS[name], name, "exec"), names)  # noqa: S102 -- the page's own words
    return names


def only(jobs: Jobs, name: str) -> Jobs:
    """One of them, to be run at once."""
    (job,) = [job for job in jobs if job.name == name]
    return job_of(job.work, name=name)


async def test_the_jobs_of_the_page_run(database: str) -> None:
    """One source fails, and the other is read; what goes on until nothing is left ends."""
    left = [3, 2, 0]

    async def read(source: str) -> list[float]:
        if source == "coast":
            raise OSError("no answer")
        return [1.5, 2.5]

    async def remove_some() -> int:
        return left.pop(0)

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table readings (source text, reading float8)")
        jobs = run("upkeep.py", read=read, remove_some=remove_some)["jobs"]
        for name in ("ingest", "clean_up"):
            async with Replica(database, only(jobs, name)) as replica:
                assert (await replica.run_once()).processed == 1
        stored = connection.execute("select source, reading from readings").fetchall()

    assert stored == [("alps", 1.5), ("alps", 2.5)]
    assert [(row["job"], row["status"], row["counters"], row["errors"]) for row in runs(database)] == [
        ("ingest", "done", {"readings": 2}, 1),
        ("clean_up", "done", {"removed": 5}, 0),
    ]
    assert {job.name: str(job.schedule) for job in jobs} == {
        "ingest": "every 2m",
        "clean_up": "cron 17 3 * * * in Europe/Berlin",
        "digest": "cron 0 7 * * mon in Europe/Berlin",
    }


async def test_a_run_that_is_late_has_no_effect_where_slots_are_compared(database: str) -> None:
    """Nor has the same one twice."""
    jobs = run("once.py", jobs=Jobs())["jobs"]
    (bill,) = jobs
    clock = SystemClock()
    around = Surroundings(connect=connecting(database), schema="public", observe=lambda _: None)

    async def at(minute: int) -> None:
        slot = START + timedelta(minutes=minute)
        await bill.work(
            Run(
                job="bill",
                slot=slot,
                worker="w",
                around=around,
                stopping=asyncio.Event(),
                clock=clock,
                deadline=clock.monotonic() + 60,
            )
        )

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table turns (job text primary key, slot timestamptz)")
        connection.execute("insert into turns values ('bill', '-infinity')")
        connection.execute(
            "create table unbilled (order_id integer, total integer); insert into unbilled values (7, 9)"
        )
        connection.execute("create table bills (order_id integer, total integer)")
        for minute in (5, 0, 5, 10):
            await at(minute)
        assert connection.execute("select count(*) from bills").fetchone() == (2,)


@pytest.fixture
def consumers_role(database: str) -> Iterator[str]:
    """The URL of a role with the rights of the page, and no other."""
    name, password = f"shop_{secrets.token_hex(8)}", secrets.token_hex(8)
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(password)))
        owner.execute(GRANTS.replace("shop_consumers", name).encode())
        try:
            yield make_conninfo(database, user=name, password=password)
        finally:
            owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


async def test_the_rights_of_the_page_are_enough(consumers_role: str, database: str) -> None:
    """For slots, for locks and for the history, which is pruned."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into relay_runs (job, slot, worker, status, started_at, finished_at) "
            "values ('old', now(), 'w', 'done', now() - interval '8 days', now() - interval '8 days')"
        )
    async with Replica(consumers_role, job_of(counted)) as replica:
        assert (await replica.run_once()).processed == 1
    assert statuses(database) == ["done"]
