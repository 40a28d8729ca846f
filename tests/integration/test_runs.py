"""The history of jobs, as operators read it."""

import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.errors import ConfigurationError, SchemaError
from relay.operate.runs import Following, HistoryReader, Wanted
from relay.postgres.connect import connect_async
from relay.upkeep.events import Status
from tests.support.commands import Commands
from tests.support.roles_of_tests import ROLES, as_emitter, as_viewer
from tests.support.waiting import until

APP = """
from relay.upkeep import Jobs
jobs = Jobs()
@jobs.every("1h")
async def ingest(run): ...
@jobs.cron("17 3 * * *", timezone="Europe/Berlin")
async def clean_up(run): ...
"""


def run(  # noqa: PLR0913 -- each by its name
    url: str,
    job: str = "ingest",
    status: str = "done",
    code: str | None = None,
    *,
    errors: int = 0,
    ended: str = "0 s",
    **counters: int,
) -> int:
    """A row of the history, which has ended so long ago; its id."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into relay_schedule (name, last_slot) values (%s, now()) on conflict do nothing", (job,)
        )
        found = connection.execute(
            """insert into relay_runs (job, slot, worker, status, finished_at, counters, errors, error_code, error)
               values (%(job)s, '2026-03-01T03:17:00Z', 'w', %(status)s,
                       case when %(status)s <> 'running' then clock_timestamp() - %(ended)s::interval end,
                       %(counters)s, %(errors)s, %(code)s, %(error)s)
               returning id""",
            {
                "job": job,
                "status": status,
                "code": code,
                "errors": errors,
                "ended": ended,
                "error": code and f"ApiError: {code}: POST /digest",
                "counters": json.dumps(counters),
            },
        ).fetchone()
    assert found
    return int(found[0])


def end(url: str, number: int, status: str = "done") -> None:
    """What its end writes."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "update relay_runs set status = %s, finished_at = clock_timestamp() where id = %s", (status, number)
        )


@pytest.fixture
async def history(database: str) -> AsyncIterator[HistoryReader]:
    """That of a fresh database, for somebody who may only look."""
    async with await connect_async(as_viewer(database)) as connection:
        yield HistoryReader(connection, "public")


async def test_what_is_wanted_is_what_is_found(history: HistoryReader, database: str) -> None:
    """The newest first, whichever index finds it."""
    done, failed = run(database), run(database, status="failed", code="HTTP_503")
    late, other = run(database, "other", "timed_out"), run(database, "other")
    at_work = run(database, status="running")
    faulty = run(database, "faulty", errors=2)

    async def found(**wanted: Any) -> list[int]:
        page = await history.page(Wanted(**wanted), 10)
        assert all(Wanted(**wanted).fits(each) for each in page)
        return [each.id for each in page]

    assert await found() == [faulty, at_work, other, late, failed, done]
    assert await found(job="ingest") == [at_work, failed, done]
    assert await found(failed=True) == [faulty, late, failed]
    assert await found(failed=True, job="faulty") == [faulty]
    assert await found(failed=True, job="other") == [late]
    assert await found(status=Status.TIMED_OUT) == [late]
    assert await found(status=Status.TIMED_OUT, job="ingest") == []
    assert await found(status=Status.DONE) == [faulty, other, done]
    assert await found(status=Status.DONE, job="ingest") == [done]
    assert await found(status=Status.RUNNING) == [at_work]
    assert await found(status=Status.RUNNING, job="other") == []


async def test_who_follows_is_told_of_each_beginning_and_each_end_once(history: HistoryReader, database: str) -> None:
    """Those that were at work before are told of when they end, and an id that appears late is told of too."""
    run(database)
    before = run(database, status="running")
    following = Following(history)
    await following.begin()

    async def told() -> list[tuple[int, str]]:
        return [(each.id, each.status) for each in await following.look()]

    assert await told() == []
    async with await psycopg.AsyncConnection.connect(database) as slow:
        cursor = await slow.execute(
            "insert into relay_runs (job, slot, worker) values ('slow', now(), 'w') returning id"
        )
        (hidden,) = await cursor.fetchone() or (0,)
        quick, at_work = run(database), run(database, status="running")
        assert await told() == [(quick, "done"), (at_work, "running")]
    end(database, before)
    assert await told() == [(before, "done"), (hidden, "running")]
    end(database, at_work, "lost")
    assert await told() == [(at_work, "lost")]
    assert await told() == []


async def test_a_schema_without_a_history_is_named(bare_database: str, database: str) -> None:
    """With the ways to one; and a role that may not read it with the way to that."""
    async with await connect_async(bare_database) as connection:
        with pytest.raises(SchemaError, match="has no history of jobs in schema 'public'; name its schema in "):
            await HistoryReader(connection, "public").require()
    async with await connect_async(as_emitter(database)) as connection:
        with pytest.raises(ConfigurationError, match="may not read relay_runs and relay_schedule in schema 'public'"):
            await HistoryReader(connection, "public").require()


@pytest.fixture
def command(database: str, tmp_path: Path) -> Commands:
    """The command line where the service's code is."""
    (tmp_path / "shop.py").write_text(APP)
    return Commands({"DATABASE_URL": database, "RELAY_APP": "shop:jobs"}, tmp_path, ROLES)


def test_runs_are_listed_page_by_page(command: Commands, database: str) -> None:
    """For people and for scripts."""
    assert command("runs").stderr == "no job has run\n"
    first, second = run(database, rows=7, kept=2), run(database, status="failed", code="HTTP_503")

    newest = command("runs", "--limit", "1")
    assert newest.stdout.startswith(f"{second}  ")
    assert "  ingest  failed  0.0 s  HTTP_503  ApiError: HTTP_503: POST /digest  slot 2026-03-01T03:17:00Z  w\n" in (
        newest.stdout
    )
    assert newest.stderr == f"more: --after {second}\n"
    rest = json.loads(command("runs", "--json", "--after", str(second)).stdout)
    assert rest["next"] is None
    (only,) = rest["runs"]
    assert (only["id"], only["counters"], only["slot"]) == (
        first,
        {"rows": 7, "kept": 2},
        "2026-03-01T03:17:00.000000Z",
    )
    assert command("runs", "--failed", "--job", "ingest").stdout == newest.stdout
    assert command("runs", "--job", "digest").stderr == "no job 'digest' has had a slot; these have: ingest\n"
    assert command("runs", "--status", "lost").stderr == "no run matches\n"


def test_each_job_has_a_line(command: Commands, database: str, tmp_path: Path) -> None:
    """Those that have not run, too, and those that RELAY_APP does not name any more."""
    run(database)
    run(database, status="failed", code="HTTP_503")
    run(database, "old")
    with psycopg.connect(database) as connection:
        connection.execute("update relay_runs set started_at = now() - interval '25 hours' where job = 'old'")
        connection.execute("insert into relay_schedule (name) values ('move:public.sources')")

    said = command("runs", "--jobs")
    assert said.stderr == ""
    heading, *lines = said.stdout.splitlines()
    assert heading.split("  ")[0] == "job"
    by_name = {line.split()[0]: line for line in lines}
    assert list(by_name) == ["ingest", "old", "relay.retention", "clean_up"]
    assert "failed HTTP_503" in by_name["ingest"]
    assert by_name["ingest"].endswith(":00:00Z  every 1h")
    assert by_name["clean_up"].endswith("17:00Z  cron 17 3 * * * in Europe/Berlin")
    assert "never ran" in by_name["clean_up"]
    told = json.loads(command("runs", "--jobs", "--json", "--job", "ingest").stdout)["jobs"]
    assert [(job["runs"], job["failures"], job["schedule"]) for job in told] == [(2, 1, "every 1h")]
    (tmp_path / "shop.py").unlink()
    without = command("runs", "--jobs")
    assert without.returncode == 0
    assert "there is no module shop" in without.stderr
    assert [line.split()[0] for line in without.stdout.splitlines()[1:]] == ["ingest", "old", "relay.retention"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "0"), "--limit is 0; it is from 1 to 10,000"),
        (("--after", "0"), "--after is 0; copy it from the end of the page before"),
        (("--jobs", "--failed"), "--jobs shows each job as it is; --status and --failed choose runs"),
    ],
)
def test_what_cannot_be_meant_is_refused(command: Commands, words: tuple[str, ...], said: str) -> None:
    """Exit 2, before the database is asked."""
    done = command("runs", *words)
    assert (done.returncode, done.stderr) == (2, f"relay: {said}\n")


def test_status_names_jobs_whose_last_run_failed(command: Commands, database: str) -> None:
    """One that is at work has not ended, one that did well since or is of old is not named, one with faults is."""
    run(database, "healed", "failed")
    run(database, "removed", "failed", ended="37 hours")
    run(database, "export", code="OSError", errors=2)
    for job, status, code in (("healed", "done", None), ("ingest", "failed", "HTTP_503"), ("ingest", "running", None)):
        run(database, job, status, code)

    said, told = command("status"), json.loads(command("status", "--json").stdout)
    assert (
        "jobs      2 did not end well or had errors last time: export (done with 2 errors OSError), "
        "ingest (failed HTTP_503); python -m relay runs --failed" in said.stdout
    )
    assert [(job["job"], job["errors"], job["error_code"]) for job in told["failing_jobs"]] == [
        ("export", 2, "OSError"),
        ("ingest", 0, "HTTP_503"),
    ]


def test_who_follows_sees_a_run_as_it_comes(command: Commands, database: str) -> None:
    """One line each, at once, also where nobody is at a terminal."""
    said: list[dict[str, Any]] = []
    with command.background("runs", "--follow", "--failed", "--json") as process:
        assert process.stdout
        output = process.stdout
        reading = threading.Thread(target=lambda: said.append(json.loads(output.readline())))
        reading.start()

        def told() -> bool:
            # Until it looks, what comes is what was there.
            run(database)
            run(database, status="lost")
            return bool(said)

        until(told, "the line of a run that was lost")
        reading.join()

    assert (said[0]["job"], said[0]["status"]) == ("ingest", "lost")
