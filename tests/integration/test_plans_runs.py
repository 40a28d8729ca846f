"""The plans of what is asked of the history of jobs, pinned at 1,000,000 runs without statistics."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.dev.stack import Stack
from relay.operate.runs import NEWEST
from relay.outbox.statements import statement as of_outbox
from relay.testing.databases import fresh_database
from relay.upkeep.statements import statement
from tests.support.plans import prepare, scans_of

pytestmark = pytest.mark.slow("fills a large table")

RUNS, JOBS = 1_000_000, 20
# Twenty jobs: one of them runs each second; of each a hundredth of the runs failed, as many
# were done with an error, and one in all is at work.
FILL = """
insert into relay_runs (job, slot, worker, status, started_at, finished_at, errors, error_code)
select case when n %% 2 = 0 then 'job-0' else 'job-' || n %% %(jobs)s end, at, 'w',
       case when n = %(runs)s then 'running' when n / 2 %% 100 = 0 then 'failed' else 'done' end,
       at, case when n < %(runs)s then at end, case when n / 2 %% 100 in (0, 50) then 1 else 0 end,
       case when n / 2 %% 100 = 0 then 'HTTP_503' end
  from generate_series(1, %(runs)s) as n,
       lateral (select now() - (%(runs)s - n) * interval '0.5 second' as at) as moment
"""
INDEXES = "select indexname, indexdef from pg_indexes where tablename = 'relay_runs' and indexname <> 'relay_runs_pkey'"
PAGE = {"job": None, "status": None, "rows": 51, "before": NEWEST}


@pytest.fixture(scope="module")
def filled(stack: Stack, template: str) -> Iterator[str]:
    """A history of a week, for tests that commit nothing."""
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute("alter table relay_runs set (autovacuum_enabled = false)")
            indexes = connection.execute(INDEXES).fetchall()
            for name, _ in indexes:
                connection.execute(f"drop index {name}".encode())
            connection.execute(FILL, {"runs": RUNS, "jobs": JOBS})
            for _, definition in indexes:
                connection.execute(definition.encode())
            connection.execute(
                "insert into relay_schedule (name, last_slot) select 'job-' || n, now() from generate_series(0, 19) n"
            )
            connection.execute("insert into relay_schedule (name) values ('move:public.sources')")
        yield url


@pytest.fixture
def connection(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """An operator's transaction, rolled back."""
    with psycopg.connect(filled, prepare_threshold=None) as connection:
        connection.execute(of_outbox("operate_enter"), {"search_path": '"public"'})
        yield connection
        connection.rollback()


def looked(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The scans of a statement that came to anything."""
    found = scans_of(connection, prepare(connection, name, statement), values)
    return [scan for scan in found if scan["Actual Loops"]]


def read(scan: dict[str, Any]) -> int:
    """How many rows a scan has looked at."""
    removed = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    return int((scan["Actual Rows"] + removed) * scan["Actual Loops"])


@pytest.mark.parametrize(
    ("name", "values", "index", "most"),
    [
        ("runs_page", PAGE, "relay_runs_pkey", 51),
        ("runs_page", {**PAGE, "status": "done", "before": 500_000}, "relay_runs_pkey", 60),
        ("runs_page_of_job", {**PAGE, "job": "job-7"}, "relay_runs_of_a_job", 51),
        ("runs_page_failed", PAGE, "relay_runs_failed", 51),
        ("runs_page_failed", {**PAGE, "status": "failed", "before": 500_000}, "relay_runs_failed", 110),
        ("runs_page_failed", {**PAGE, "job": "job-0"}, "relay_runs_failed", 110),
        ("runs_page_running", PAGE, "relay_runs_running", 1),
    ],
)
def test_a_page_reads_what_it_shows(
    connection: psycopg.Connection[Any], name: str, values: dict[str, Any], index: str, most: int
) -> None:
    """By the index of what is meant, wherever the page begins."""
    (scan,) = looked(connection, name, values)
    assert scan["Index Name"] == index
    assert 0 < read(scan) <= most


def test_following_reads_what_is_new_and_what_was_running(connection: psycopg.Connection[Any]) -> None:
    """And a hundred runs before, among which one may appear late."""
    found = looked(connection, "runs_changed", {"after": RUNS - 100, "running": [5, 7, RUNS]})
    assert {scan["Index Name"] for scan in found} == {"relay_runs_pkey"}
    assert sum(map(read, found)) <= 103


def test_jobs_that_fail_are_found_by_their_last_run(connection: psycopg.Connection[Any]) -> None:
    """A step or two for each job, however long its history."""
    found = looked(connection, "runs_failing", {})
    (history,) = [scan for scan in found if scan["Relation Name"] == "relay_runs"]
    assert history["Index Name"] == "relay_runs_of_a_job"
    assert read(history) <= 2 * JOBS


def test_a_line_of_a_job_reads_its_newest_runs(connection: psycopg.Connection[Any]) -> None:
    """A bounded number of them, of a job that runs each second too."""
    found = looked(connection, "runs_jobs", {})
    history = [scan for scan in found if scan["Relation Name"] == "relay_runs"]
    assert {scan["Index Name"] for scan in history} == {"relay_runs_of_a_job"}
    # Half of all runs are of one job, and each of ten others has a twentieth.
    assert sum(map(read, history)) <= 100_000 + 10 * RUNS // JOBS + JOBS
