"""`consumers run` with RELAY_APP: jobs beside consumers, and alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.commands import Commands, terminate
from tests.support.forked import Running
from tests.support.jobs import runs

SHOP = """
import asyncio
from consumers import Consumer
from relay.upkeep import Jobs, Run

billing = Consumer("billing", dedup="inbox", source="outbox")

@billing.on("order.paid")
async def book(event) -> None: ...

jobs, stuck, http = Jobs(), Jobs(), Jobs()

@jobs.every("1h")
async def ingest(run: Run) -> None:
    async with run.transaction() as connection:
        await connection.execute("select 1")
    run.count("rows", 3)

@jobs.every("1h")
async def digest(run: Run) -> None:
    raise RuntimeError("no answer")

@stuck.every("1h")
async def wait(run: Run) -> None:
    await asyncio.Event().wait()

http.http("/internal/digest", name="call", every="1h")
"""


@pytest.fixture
def shop(inbox_database: str, tmp_path: Path) -> Commands:
    """The command line where a service's code is: no broker, no Redis."""
    (tmp_path / "shop.py").write_text(SHOP)
    return Commands({"DATABASE_URL": inbox_database, "RELAY_APP": "shop:jobs"}, tmp_path, program="consumers")


def read_until(process: Running, *names: str) -> list[dict[str, Any]]:
    """The log up to lines of all these names, as often as each is named."""
    found: list[dict[str, Any]] = []
    assert process.stderr
    for line in process.stderr:
        found.append(json.loads(line))
        if Counter(names) <= Counter(fields["event"] for fields in found):
            return found
    raise AssertionError(f"the process ended with {process.wait()}: {found}")


def test_jobs_run_beside_consumers_and_end_none(shop: Commands, inbox_database: str) -> None:
    """One of them fails; a process of both ends in order, in one line."""
    with shop.background("run", "shop:billing") as process:
        log = read_until(process, "consumer_started", "run_ended", "run_ended")
        code, rest = terminate(process)

    ended = {line["job"]: (line["level"], line["status"]) for line in log if line["event"] == "run_ended"}
    assert ended == {"ingest": ("info", "done"), "digest": ("error", "failed")}
    assert {run["job"]: (run["status"], run["counters"]) for run in runs(inbox_database)} == {
        "ingest": ("done", {"rows": 3}),
        "digest": ("failed", {}),
    }
    names = Counter(json.loads(line)["event"] for line in rest.splitlines())
    assert (code, names["shutdown"], names["stopped"], names["consumer_stopped"]) == (0, 1, 1, 1)


def test_jobs_run_alone_in_the_schema_of_the_inbox(shop: Commands, inbox_database: str) -> None:
    """Where a schema has none of their tables, that is said, and tried again; nothing ends by it."""
    with shop.background("run", INBOX_SCHEMA="tohre") as process:
        (line, *_) = [line for line in read_until(process, "pass_failed") if line["event"] == "pass_failed"]
        assert terminate(process)[0] == 0
    assert "the database has no schema 'tohre', which INBOX_SCHEMA names; correct the name there" in line["error"]
    with psycopg.connect(inbox_database) as connection:
        connection.execute("create schema other")
    with shop.background("run", INBOX_SCHEMA="other") as process:
        log = read_until(process, "pass_failed")
        code, _ = terminate(process)
    failed = [line for line in log if line["event"] == "pass_failed"]
    assert "schema 'other', which INBOX_SCHEMA names, has no table relay_schedule" in failed[0]["error"]
    assert failed[0]["remedy"].startswith("error says what to correct")
    assert failed[0]["runner"].startswith("job:")
    assert code == 0
    with shop.background("run") as process:
        log = read_until(process, "run_ended", "run_ended")
        code, _ = terminate(process)
    assert code == 0
    (started,) = [line for line in log if line["event"] == "jobs_started"]
    assert (started["runners"], started["schema"]) == (["job:ingest", "job:digest"], "public")


def test_a_job_that_does_not_end_is_named_at_the_end(shop: Commands, inbox_database: str) -> None:
    """It is cancelled after the soft timeout, as a handler is."""
    settings = {"RELAY_APP": "shop:stuck", "CONSUMERS_SHUTDOWN_MS": "100ms", "CONSUMERS_LOG_LEVEL": "debug"}
    with shop.background("run", "shop:billing", **settings) as process:
        read_until(process, "consumer_started", "run_began")
        code, rest = terminate(process)

    (stopped,) = [json.loads(line) for line in rest.splitlines() if '"stopped"' in line]
    assert (code, stopped["abandoned"]) == (1, ["job:wait"])
    assert [run["status"] for run in runs(inbox_database)] == ["cancelled"]


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ((), {"RELAY_APP": ""}, "there is nothing to run: name consumers, like shop.billing:consumer, or jobs in "),
        ((), {"DATABASE_URL": ""}, "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db ("),
        (
            ("shop:billing",),
            {"RELAY_APP": "shop:jbos"},
            "RELAY_APP: 'shop:jbos': the module has nothing of that name; ",
        ),
        ((), {"RELAY_APP": "shop:http"}, "WORKER_API_BASE_URL is not set; write it like https://api.internal (job "),
    ],
)
def test_what_cannot_run_is_refused(
    shop: Commands, words: tuple[str, ...], settings: dict[str, str], said: str
) -> None:
    """Before anything is connected to, and `consumers config` finds it too."""
    done = shop("run", *words, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"consumers: {said}")
    if settings != {"RELAY_APP": ""}:
        found = shop("config", "--json", **settings)
        assert found.returncode == 2
        assert json.loads(found.stdout)["faults"][0].startswith(said)
