"""The history of jobs is bounded, and what is said there costs what it is about, whatever is in the table."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay.postgres.statements import search_path
from relay.testing.databases import fresh_database
from relay.upkeep.statements import statement
from tests.support.jobs import Replica, counted, job_of, runs
from tests.support.plans import analysed_for_now, prepare, run, scans_of

RUNS, PAGE = 20_000, 500
KEY = "relay_runs_pkey"
# Three quarters ended long ago; a few are under way, the oldest among them.
FILL = f"""
    insert into relay_runs (job, slot, worker, status, started_at, finished_at)
    select 'job' || n % 20, at, 'worker', case when n % 1000 = 1 then 'running' else 'done' end, at,
           case when n % 1000 = 1 then null else at end
      from generate_series(1, {RUNS}) as n
     cross join lateral (select now() - make_interval(days => case when n <= {RUNS} * 3 / 4 then 8 else 1 end)) as a(at);
    insert into relay_schedule (name, last_slot) select 'job' || n, now() - interval '1 hour' from generate_series(1, 2000) as n;
"""  # noqa: E501, S608 -- a test's own words
WEEK = timedelta(days=7).total_seconds()


@pytest.fixture(scope="module")
def filled(outbox_template: str, outbox_postgres_url: str) -> Iterator[str]:
    """The tables, for tests that commit nothing; nobody has looked at them since they were filled."""
    with fresh_database(outbox_postgres_url, outbox_template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(FILL.encode())
        yield url


@pytest.fixture(params=[False, True], ids=["never analysed", "analysed"])
def connection(filled: str, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A session of the jobs, rolled back."""
    with analysed_for_now(filled), psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(
            statement("enter"), {"search_path": search_path("public"), "statement_ms": "30000", "local": True}
        )
        if request.param:
            connection.execute("analyze relay_runs, relay_schedule")
        yield connection
        connection.rollback()


def visited(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> dict[str, int]:
    """How many rows of each index a statement looked at."""
    found: dict[str, int] = {}
    for scan in scans_of(connection, prepare(connection, name, statement), values):
        rows = (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        index = scan.get("Index Name", scan["Node Type"])
        found[index] = found.get(index, 0) + round(rows)
    return {index: rows for index, rows in found.items() if rows}


def test_a_page_of_the_pruning_looks_at_its_rows(connection: psycopg.Connection[Any]) -> None:
    """Once to find them and once to remove them; the one that is under way it passes."""
    found = visited(connection, "runs_prune", {"rows": PAGE, "seconds": WEEK, "skew": 0.0})
    assert found == {KEY: PAGE + 1 + PAGE}
    assert connection.execute("select count(*) from relay_runs").fetchone() == (RUNS - PAGE,)


def test_what_a_run_says_of_itself_looks_at_its_own_rows(connection: psycopg.Connection[Any]) -> None:
    """At its beginning those of its job that are under way, at its end itself."""
    now = datetime.now(UTC)
    begun = visited(connection, "run_begin", {"job": "job1", "slot": now, "worker": "me"})
    assert begun == {"relay_runs_running": RUNS // 1000}
    ended: dict[str, Any] = {"status": "done", "counters": "{}", "errors": 0, "error_code": None, "error": None}
    ended["late"] = 0.0
    assert visited(connection, "run_end", {"id": 2, **ended}) == {KEY: 1}


def test_a_slot_is_taken_by_its_name(connection: psycopg.Connection[Any]) -> None:
    """Whether it is ours or not."""
    now = datetime.now(UTC)
    values = {
        "name": "job7",
        "slot": now - timedelta(minutes=1),
        "until": now + timedelta(hours=1),
        "at_once": True,
        "by": "me",
        "skew": 0.0,
    }
    found = visited(connection, "slot_take", values)
    assert set(found) == {"relay_schedule_pkey"}
    assert found["relay_schedule_pkey"] <= 3


@pytest.mark.parametrize(
    ("wanted", "made"),
    [
        ({"name": "new", "at_once": True, "slot": None}, (False, None)),
        ({"name": "job7", "at_once": True, "slot": timedelta(hours=-2)}, (False, -1)),
        ({"name": "job7", "at_once": True, "slot": timedelta(minutes=5)}, (False, -1)),
        ({"name": "job7", "at_once": True, "slot": timedelta(minutes=-5)}, (True, -1)),
    ],
    ids=["nobody knew it", "taken before", "not come yet", "due"],
)
def test_a_slot_is_taken_once_and_not_before_its_time(
    connection: psycopg.Connection[Any], wanted: dict[str, Any], made: tuple[bool, int | None]
) -> None:
    """By the database's clock; what is answered is how it was before."""
    now = datetime.now(UTC)
    slot = None if wanted["slot"] is None else now + wanted["slot"]
    values = {**wanted, "slot": slot, "until": now + timedelta(hours=1), "by": "me", "skew": 0.0}
    taking = prepare(connection, "slot_take", statement)
    taken, told, last, _ = run(connection, taking, values)
    assert taken is made[0]
    assert abs(told - now.timestamp()) < 5
    assert (last is None) if made[1] is None else abs(last - now.timestamp() + 3600) < 60
    assert run(connection, taking, values)[0] is False


async def test_the_history_is_pruned_after_a_run(database: str) -> None:
    """What is older than its time, whatever its job; what is under way stays, however old."""
    with psycopg.connect(database) as connection:
        connection.execute(FILL.replace(str(RUNS), "3000").encode())
        connection.execute("insert into relay_runs (job, slot, worker, started_at) values ('a', now(), 'b', 'epoch')")
    async with Replica(database, job_of(counted), kept=timedelta(days=7)) as replica:
        await replica.run_once()
        left = runs(database)
        old = [each for each in left if each["started_at"] < datetime.now(UTC) - timedelta(days=7)]
        assert {each["status"] for each in old} == {"running"}
        assert len(left) == 750 + 1 + 1 + len(old) - 1
        # Soon after it is not looked for again.
        with psycopg.connect(database) as connection:
            connection.execute("update relay_runs set finished_at = 'epoch' where status = 'done'")
        replica.skew = 3600.0
        assert (await replica.run_once()).processed == 1
        assert len(runs(database)) == len(left) + 1
