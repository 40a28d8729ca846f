"""Jobs as a service's operator has them: `relay tick` from a cron, `relay run` beside the publisher or alone."""

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.commands import SECONDS, Commands, terminate
from tests.support.forked import Running
from tests.support.jobs import runs
from tests.support.roles_of_tests import ROLES

SHOP = """
import asyncio
from relay.upkeep import Jobs, Run

jobs, empty, http = Jobs(), Jobs(), Jobs()

@jobs.every("1h")
async def ingest(run: Run) -> None:
    run.count("rows", 3)
    run.fault(RuntimeError("no answer"), "source b")

@jobs.every("1h")
async def digest(run: Run) -> None:
    raise RuntimeError("card 4111 1111 1111 1111")

@jobs.cron("17 3 29 2 *")
async def leap(run: Run) -> None:
    run.count("never")

stuck = Jobs()

@stuck.every("1h")
async def wait(run: Run) -> None:
    await asyncio.Event().wait()

http.http("/internal/digest", name="call", every="1h")
"""
TOKEN = "hunter2-token"  # noqa: S105 -- made up, to be looked for in what is printed
JOBS_ALONE = {"RELAY_RUNNERS": "jobs", "RELAY_APP": "shop:jobs", "RELAY_STATS_MS": "100ms"}


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Commands:
    """The command line where a service's code is; nothing of it needs a broker."""
    (tmp_path / "shop.py").write_text(SHOP)
    return Commands({"DATABASE_URL": database, **JOBS_ALONE}, tmp_path, ROLES)


def lines(log: str) -> list[dict[str, Any]]:
    """What a process logged."""
    return [json.loads(line) for line in log.splitlines()]


def read_until(process: Running, *names: str) -> list[dict[str, Any]]:
    """The log up to lines of all these names, as often as each is named."""
    found: list[dict[str, Any]] = []
    assert process.stderr
    for line in process.stderr:
        found.append(json.loads(line))
        if Counter(names) <= Counter(fields["event"] for fields in found):
            return found
    raise AssertionError(f"the process ended with {process.wait()}: {found}")


def ask(port: int, path: str) -> tuple[int, str]:
    """One request; status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_tick_runs_what_is_due_once_and_prints_a_report(shop: Commands, database: str) -> None:
    """One job failed: its row says so, and the tick is fine. The next tick has nothing to do."""
    first, second = shop("tick"), shop("tick")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    report = {name: {**told, "duration_ms": 0} for name, told in json.loads(first.stdout)["runners"].items()}
    ran = {"ran": True, "updated": 0, "skipped": 0, "next": "idle", "duration_ms": 0, "error": None}
    assert report == {
        "job:ingest": {**ran, "processed": 1, "errors": 1},
        "job:digest": {**ran, "processed": 1, "errors": 1},
        "job:leap": {"ran": False, "due": False, "duration_ms": 0},
    }
    assert list(json.loads(second.stdout)["runners"].values()) == [{"ran": False, "due": False}] * 3
    assert [(run["job"], run["status"], run["counters"]) for run in runs(database)] == [
        ("ingest", "done", {"rows": 3}),
        ("digest", "failed", {}),
    ]
    assert [(line["event"], line.get("status")) for line in lines(first.stderr)] == [
        ("run_fault", None),
        ("run_ended", "done"),
        ("run_ended", "failed"),
    ]
    assert "4111" not in first.stderr + str(runs(database))


def test_one_job_runs_when_somebody_says_so(shop: Commands, database: str) -> None:
    """Whether it is due or not, by its lock, and with its history; the slots up to then are done with."""
    done = [shop("tick", "--job", name) for name in ("leap", "leap", "ingest", "digest")]
    assert [each.returncode for each in done] == [0, 0, 1, 1], "".join(each.stderr for each in done)
    assert [list(json.loads(each.stdout)["runners"]) for each in done[1:3]] == [["job:leap"], ["job:ingest"]]
    assert [(run["job"], run["status"]) for run in runs(database)] == [
        ("leap", "done"),
        ("leap", "done"),
        ("ingest", "done"),
        ("digest", "failed"),
    ]
    assert not any(told["ran"] for told in json.loads(shop("tick").stdout)["runners"].values())

    unknown = shop("tick", "--job", "ingets")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (
        "there is no job 'ingets'; did you mean ingest? known: relay.retention, ingest, digest, leap" in unknown.stderr
    )
    with stuck(shop, "tick"):
        busy = shop("tick", "--job", "wait", RELAY_APP="shop:stuck")
    assert (busy.returncode, busy.stderr.splitlines()[-1]) == (
        1,
        "relay: job 'wait' did not run: its run before is at work still, here or elsewhere",
    )


def test_a_relay_with_jobs_alone_needs_no_broker_and_is_ready(shop: Commands, database: str) -> None:
    """It says that it has started, serves probes and metrics, and ends in order."""
    with shop.background("run", RELAY_HTTP="127.0.0.1:0") as process:
        log = read_until(process, "http_listening", "started", "relay_stats", "run_ended", "run_ended")
        (port,) = [line["port"] for line in log if line["event"] == "http_listening"]
        ready, healthy, metrics = (ask(port, path) for path in ("/readyz", "/healthz", "/metrics"))
        code, rest = terminate(process)

    (started,) = [line for line in log if line["event"] == "started"]
    assert started["runners"] == ["job:ingest", "job:digest", "job:leap"]
    assert (started["project"], started["topic"], started["batch_size"]) == (None, None, None)
    assert (ready[0], healthy[0]) == (200, 200), ready[1] + healthy[1]
    assert 'relay_job_runs_total{job="ingest",status="done"} 1.0' in metrics[1]
    assert (code, lines(rest)[-1]["event"]) == (0, "stopped")
    assert {run["job"]: run["status"] for run in runs(database)} == {"ingest": "done", "digest": "failed"}


def test_jobs_run_beside_the_publisher_and_end_nothing_of_it(relay: Commands, database: str, tmp_path: Path) -> None:
    """Where the schema has no room for jobs, events go out all the same."""
    (tmp_path / "shop.py").write_text(SHOP)
    with psycopg.connect(database) as connection:
        connection.execute("drop table relay_runs, relay_schedule")
    with relay.background("run", RELAY_APP="shop:jobs", RELAY_RUNNERS="publish,jobs") as process:
        log = read_until(process, "started", "pass_failed")
        code, rest = terminate(process)

    assert [line["runners"] for line in log if line["event"] == "started"] == [
        ["publish", "job:ingest", "job:digest", "job:leap"]
    ]
    failed = [line for line in log if line["event"] == "pass_failed"]
    assert "has no table relay_schedule: jobs need version 6 of the outbox" in failed[0]["error"]
    assert (code, lines(rest)[-1]["event"]) == (0, "stopped")


@contextmanager
def stuck(shop: Commands, command: str) -> Iterator[Running]:
    """A process whose job does not end."""
    settings = {"RELAY_APP": "shop:stuck", "RELAY_SHUTDOWN_MS": "100ms", "RELAY_LOG_LEVEL": "debug"}
    with shop.background(command, **settings) as process:
        read_until(process, "run_began")
        yield process


def test_a_job_that_does_not_end_is_cancelled_at_the_end_of_its_process(shop: Commands, database: str) -> None:
    """After the soft timeout, and its row says so."""
    with stuck(shop, "run") as process:
        code, _ = terminate(process)
    assert (code, [run["status"] for run in runs(database)]) == (1, ["cancelled"])


def test_a_tick_that_is_stopped_cancels_its_job_too(shop: Commands, database: str) -> None:
    """It says so, and exits 1."""
    with stuck(shop, "tick") as process:
        code, log = terminate(process)
    assert (code, [run["status"] for run in runs(database)]) == (1, ["cancelled"])
    assert "relay: stopped by SIGTERM in the middle of a pass, which was cancelled" in log


@pytest.mark.parametrize("command", ["run", "tick"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"RELAY_APP": ""}, "relay: RELAY_RUNNERS is 'jobs', and there is no job to run: name yours in RELAY_APP="),
        (
            {"RELAY_APP": "shop:empty"},
            "relay: RELAY_RUNNERS is 'jobs', and there is no job to run: RELAY_APP is 'shop:empty', which",
        ),
        (
            {"RELAY_RUNNERS": "retention", "RELAY_APP": "", "RELAY_RETENTION": "off"},
            "relay: RELAY_RUNNERS is 'retention', and there is no job to run: RELAY_RETENTION is off\n",
        ),
        (
            {"RELAY_APP": "shop:jbos"},
            "relay: RELAY_APP: 'shop:jbos': the module has nothing of that name; it has shop:",
        ),
        ({"RELAY_APP": "shop:http"}, "relay: WORKER_API_BASE_URL is not set; write it like https://api.internal (job "),
        (
            {"RELAY_APP": "shop:http", "WORKER_API_BASE_URL": "http://localhost:1"},
            "relay: WORKER_API_SERVICE_TOKEN is not set, and nothing is called without one; set it to what",
        ),
    ],
)
def test_what_cannot_run_is_refused(shop: Commands, command: str, settings: dict[str, str], said: str) -> None:
    """Before anything is connected to."""
    done = shop(command, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)


def test_jobs_that_do_not_run_are_told_of(shop: Commands) -> None:
    """An app without jobs is one whose modules nobody imports."""
    empty = shop("config", RELAY_APP="shop:empty", RELAY_RUNNERS="publish,jobs")
    left_out = shop("config", RELAY_RUNNERS="publish")
    assert "RELAY_APP is 'shop:empty', which has no job; see that the modules are" in empty.stdout + empty.stderr
    said = "RELAY_APP is 'shop:jobs', and its jobs do not run: RELAY_RUNNERS does not name jobs"
    assert said in left_out.stdout + left_out.stderr


def test_the_configuration_shows_no_token(shop: Commands) -> None:
    """And says what an HTTP job lacks."""
    done = shop("config", RELAY_APP="shop:http", WORKER_API_SERVICE_TOKEN=TOKEN)
    assert done.returncode == 2
    assert TOKEN not in done.stdout + done.stderr
    assert "WORKER_API_BASE_URL is not set" in done.stderr
    assert "PUBSUB_PROJECT_ID is not set" not in done.stdout + done.stderr


def test_the_doctor_names_jobs_that_nobody_runs(relay: Commands, database: str, tmp_path: Path) -> None:
    """Until somebody does; and it says what they lack."""
    (tmp_path / "shop.py").write_text(SHOP)

    def found() -> list[str]:
        done = relay("doctor", "--json", PUBSUB_PROJECT_ID="", **JOBS_ALONE)
        findings = json.loads(done.stdout)["findings"]
        assert "broker" not in {each["check"] for each in findings}
        return [each["found"] for each in findings if each["check"] == "jobs"]

    assert found() == [f"{job} has never been begun" for job in ("ingest", "digest", "leap")]
    assert relay("tick", **JOBS_ALONE).returncode == 0
    assert found() == ["of 3 job(s) that these settings name, each has its slots taken"]
    with psycopg.connect(database) as connection:
        connection.execute("drop table relay_schedule")
    assert found() == ["they cannot run: the schema has no table relay_schedule, which comes with version 6"]
