"""`relay run` and `relay tick` as processes: signals, exit codes, and what they write where."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay import emit
from relay.dev.postgres import EmbeddedPostgres
from relay.dev.stack import PROJECT_ID, Part, Stack
from relay.outbox import schema
from tests.support.commands import ROOT, Commands, terminate
from tests.support.forked import Running
from tests.support.looking import asked
from tests.support.outbox import PENDING, PUBLISHED, count, event
from tests.support.pubsub import Channel, PubSubSide, event_ids
from tests.support.roles_of_tests import as_emitter
from tests.support.waiting import until

SECONDS = 60.0
DISCONNECT = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'outbox-relay'"""


def emitted(url: str, number: int = 0) -> str:
    """Emit one event; answer with its id."""
    with psycopg.connect(as_emitter(url)) as connection:
        return str(emit(connection, event(number)).event_id)


def wait_for(process: Running, name: str) -> dict[str, Any]:
    """Read the log up to a line of this name."""
    return wait_for_any(process, {name})[1]


def wait_for_any(process: Running, names: AbstractSet[str]) -> tuple[str, dict[str, Any]]:
    """Read the log up to a line of one of these names."""
    assert process.stderr
    for line in process.stderr:
        fields: dict[str, Any] = json.loads(line)
        if fields["event"] in names:
            return fields["event"], fields
    raise AssertionError(f"the process ended with {process.wait()} and never logged {sorted(names)}")


def lines_of(log: str) -> list[dict[str, Any]]:
    """Every line of a log, each of which must be JSON."""
    return [json.loads(line) for line in log.splitlines()]


def execute(url: str, statement: str) -> None:
    """Run a statement beside the relay."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())


def is_claimed(url: str) -> bool:
    """Whether somebody holds the rows' locks."""
    return not asked(url, "select id from outbox_events for update skip locked")


def waits_for_a_lock(url: str) -> bool:
    """Whether some session of this database waits for an advisory lock."""
    return bool(
        asked(url, "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'")
    )


@contextmanager
def silent_server() -> Iterator[str]:
    """A host and port that accept connections and never say a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed_port() -> str:
    """A host and port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_tick_prints_its_report_and_nothing_else(relay: Commands, database: str) -> None:
    """One line of JSON on stdout for scripts; on stderr the log, as JSON where no terminal is."""
    emitted(database)

    done = relay("tick")

    assert done.returncode == 0
    (report,) = lines_of(done.stdout)
    assert report["runners"]["publish"] == {
        "ran": True,
        "processed": 1,
        "updated": 1,
        "skipped": 0,
        "errors": 0,
        "next": "idle",
        "duration_ms": report["runners"]["publish"]["duration_ms"],
        "error": None,
    }
    assert [line["event"] for line in lines_of(done.stderr)] == ["batch"]


def test_a_relay_is_found_by_its_name(relay: Commands, database: str) -> None:
    """In pg_stat_activity and in each log line: whose transaction is open, where several relays work here."""
    with relay.background("run", RELAY_NAME="relay-eu") as process:
        started = wait_for(process, "started")
        with psycopg.connect(database) as connection:
            named = connection.execute(
                "select 1 from pg_stat_activity where datname = current_database() and application_name = 'relay-eu'"
            ).fetchall()
        code, log = terminate(process)

    assert code == 0
    assert len(named) >= 1
    assert {line["app"] for line in [started, *lines_of(log)]} == {"relay-eu"}


def test_a_tick_names_an_unknown_runner_once_and_works_on(relay: Commands, database: str) -> None:
    """However often RELAY_RUNNERS names it."""
    emitted(database)

    done = relay("tick", RELAY_RUNNERS="publsh,publish,publsh")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runners"]["publish"]["updated"] == 1
    assert done.stderr.count("warning: RELAY_RUNNERS names 'publsh', which is no runner") == 1


async def test_a_tick_whose_broker_refuses_is_no_failed_tick(
    relay: Commands, database: str, pubsub: PubSubSide
) -> None:
    """The report counts it, the log tells it, the row waits: nobody is to be woken by a cron job for that."""
    emitted(database)
    await pubsub.fail("UNAVAILABLE")

    done = relay("tick")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runners"]["publish"]["errors"] == 1
    assert lines_of(done.stderr)[0]["code"] == "UNAVAILABLE"
    assert count(database, PENDING) == 1


def test_a_tick_without_its_database_exits_1_with_a_sentence(relay: Commands) -> None:
    """The report is printed all the same."""
    done = relay("tick", DATABASE_URL=f"postgresql://u:hunter2@{closed_port()}/db")

    assert done.returncode == 1
    report = json.loads(done.stdout)["runners"]["publish"]
    assert report["ran"]
    assert "Connection refused" in report["error"]
    assert done.stderr.startswith("relay: connection failed")
    assert all(line.startswith("relay: ") for line in done.stderr.splitlines())
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["run", "tick"])
def test_a_database_without_an_outbox_is_a_wrong_configuration(
    relay: Commands, bare_database: str, command: str
) -> None:
    """No retry will create it: exit 2, and the one line says what will."""
    done = relay(command, DATABASE_URL=bare_database, RELAY_RUNNERS="publish,retention")

    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("relay: database ")
    assert sentence.endswith("create it with: python -m relay migrate")


def test_a_tick_retires_what_was_published_long_ago(relay: Commands, database: str) -> None:
    """As every process does that is told nothing else; the report has it, and the history."""
    emitted(database)
    assert relay("tick").returncode == 0
    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set published_at = now() - interval '31 days'")

    done = relay("tick", RELAY_RUNNERS="publish,retention,jobs")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runners"]["job:relay.retention"]["processed"] == 1
    (run,) = json.loads(relay("runs", "--json").stdout)["runs"]
    assert (run["job"], run["status"], run["counters"]) == (
        "relay.retention",
        "done",
        {"moved:public.outbox_events": 1},
    )


@pytest.mark.parametrize("command", ["run", "tick"])
def test_wrong_settings_exit_2_with_a_line_for_each(relay: Commands, command: str) -> None:
    """Before anything is started, and without the password."""
    done = relay(
        command,
        DATABASE_URL="postgresql://user:hunter2@[::1/db",
        RELAY_BATCH_SIZE="many",
        RELAY_SHUTDOWN_MS="soon",
    )

    assert done.returncode == 2
    assert [line.split()[:2] for line in done.stderr.splitlines()] == [
        ["relay:", "DATABASE_URL"],
        ["relay:", "RELAY_BATCH_SIZE"],
        ["relay:", "RELAY_SHUTDOWN_MS"],
    ]
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


async def test_dot_env_in_the_working_directory_is_read(
    stack: Stack, database: str, pubsub: PubSubSide, channel: Channel, tmp_path: Path
) -> None:
    """A file of settings is all that a command needs."""
    emitted(database)
    settings = {**stack.environment, "DATABASE_URL": f"'{database}'", "RELAY_TOPIC": channel.topic}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    done = Commands({}, tmp_path)("tick")

    assert done.returncode == 0, done.stderr
    assert len(await pubsub.drain(channel)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_relay_in_order(relay: Commands, database: str, number: signal.Signals) -> None:
    """Exit 0, since nothing was abandoned; the last two lines tell of the end, and stdout stays empty."""
    emitted(database)
    with relay.from_nothing("run") as process:
        wait_for(process, "batch")
        process.send_signal(number)
        said, log = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    began, ended = lines_of(log)[-2:]
    assert (began["event"], began["reason"]) == ("shutdown", number.name)
    assert (ended["event"], ended["abandoned"]) == ("stopped", [])
    assert said == ""


async def test_what_is_in_flight_at_sigterm_is_finished(
    relay: Commands, stack: Stack, database: str, pubsub: PubSubSide, channel: Channel
) -> None:
    """The broker's answer comes after the signal; the row is marked, and nothing is published twice."""
    assert stack.pubsub
    event_id = emitted(database)
    os.kill(stack.pubsub.pid, signal.SIGSTOP)
    try:
        with relay.background("run") as process:
            until(lambda: is_claimed(database), "the row is claimed")
            process.send_signal(signal.SIGTERM)
            wait_for(process, "shutdown")
            os.kill(stack.pubsub.pid, signal.SIGCONT)
            process.communicate(timeout=SECONDS)
    finally:
        os.kill(stack.pubsub.pid, signal.SIGCONT)

    assert process.returncode == 0
    assert count(database, PUBLISHED) == 1
    assert event_ids(await pubsub.drain(channel)) == [event_id]


def test_what_outlives_the_soft_timeout_is_cancelled_and_named(relay: Commands, database: str) -> None:
    """Exit 1; the row is released and waits for the next relay."""
    emitted(database)
    with (
        silent_server() as broker,
        relay.background("run", PUBSUB_EMULATOR_HOST=broker, RELAY_SHUTDOWN_MS="100") as (process),
    ):
        until(lambda: is_claimed(database), "the row is claimed")
        code, log = terminate(process)

    assert code == 1
    assert lines_of(log)[-1]["abandoned"] == ["publish"]
    until(lambda: not is_claimed(database), "the row is released")
    assert count(database, PENDING) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_second_signal_ends_the_relay_at_once(relay: Commands, database: str, number: signal.Signals) -> None:
    """With 128 and its number, whatever is in flight; the database releases the row."""
    emitted(database)
    with silent_server() as broker, relay.background("run", PUBSUB_EMULATOR_HOST=broker) as process:
        until(lambda: is_claimed(database), "the row is claimed")
        process.send_signal(signal.SIGTERM)
        wait_for(process, "shutdown")
        process.send_signal(number)

        assert process.wait(SECONDS) == 128 + number
    until(lambda: not is_claimed(database), "the row is released")


def test_sigterm_while_connecting_is_heard(relay: Commands) -> None:
    """A database that does not answer holds nobody up beyond the soft timeout."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        relay.background(
            "run",
            DATABASE_URL=f"postgresql://u:p@127.0.0.1:{server.getsockname()[1]}/db",
            RELAY_SHUTDOWN_MS="100",
        ) as process,
    ):
        server.settimeout(SECONDS)
        connection, _ = server.accept()
        with connection:
            _, log = terminate(process)

    assert [line["event"] for line in lines_of(log)] == ["shutdown", "stopped"]


def test_process_1_of_a_container_hears_sigterm_in_every_command(relay: Commands, database: str) -> None:
    """Where SIGTERM has no default action, as for process 1, a command that waits still ends at it."""
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by what is started now
    try:
        with psycopg.connect(database) as holder:
            holder.execute("select pg_advisory_xact_lock(%s, %s)", schema.MIGRATION_LOCK)
            with relay.from_nothing("migrate", "--to", "0") as process:
                until(lambda: waits_for_a_lock(database), "the migration waits for another one")
                code, log = terminate(process)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert code == 128 + signal.SIGTERM, log


def test_a_start_says_where_the_relay_works(relay: Commands, database: str, stack: Stack) -> None:
    """Before there is anything to publish; without the user and the password."""
    with relay.background("run", RELAY_BATCH_SIZE="7", RELAY_RUNNERS="publish") as process:
        started = wait_for(process, "started")
        _, log = terminate(process)

    del started["timestamp"]
    parts = conninfo_to_dict(database)
    assert started == {
        "event": "started",
        "level": "info",
        "database": f"{parts['host']}:{parts['port']}/{parts['dbname']}",
        "schema": "public",
        "schema_version": schema.newest(),
        "runners": ["publish"],
        "project": PROJECT_ID,
        "broker": f"emulator {stack.pubsub_emulator_host}",
        "topic": relay.settings["RELAY_TOPIC"],
        "batch_size": 7,
    }
    assert [line["event"] for line in lines_of(log)] == ["shutdown", "stopped"]


AGAIN = {"listen_lost", "reconnected", "listen_connected"}


def test_a_lost_connection_is_told_once_and_so_is_its_return(relay: Commands, database: str) -> None:
    """The loss and the reconnection are lines; what the driver says meanwhile is not, and no pass has to fail."""
    with relay.background("run", RELAY_OUTAGE_MAX_MS="500") as process:
        wait_for(process, "listen_connected")
        execute(database, DISCONNECT)
        # A pass that begins just then notices first.
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(AGAIN):
            name, line = wait_for_any(process, AGAIN - set(found))
            found[name] = line
        lost, again, heard = (found[name] for name in ("listen_lost", "reconnected", "listen_connected"))
        code, log = terminate(process)

    assert code == 0
    assert [line["event"] for line in lines_of(log)] == ["shutdown", "stopped"]
    assert lost["consequence"].startswith("the relay polls")
    assert heard["database"] == again["database"]
    assert again["database"].endswith(f"/{conninfo_to_dict(database)['dbname']}")


def test_a_relay_that_has_worked_waits_for_a_schema_that_is_not_its_own(relay: Commands, database: str) -> None:
    """The error that would end a start is a line then: a release may be stepped back while it runs."""
    emitted(database)
    with relay.background("run", RELAY_OUTAGE_MAX_MS="500") as process:
        wait_for(process, "batch")
        execute(database, "insert into outbox_migrations (version, name) values (999, 'later')")
        execute(database, DISCONNECT)
        while not (failed := wait_for(process, "pass_failed"))["error"].startswith("SchemaError"):
            pass
        execute(database, "delete from outbox_migrations where version = 999")
        wait_for(process, "reconnected")
        code, _ = terminate(process)

    assert "is at version 999" in failed["error"]
    assert code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_while_the_packages_are_loaded_is_a_quiet_end(
    relay: Commands, tmp_path: Path, number: signal.Signals
) -> None:
    """An impatient Ctrl-C is no reason for a traceback."""
    # In the working directory, and so before the package of that name: an import that takes as long as the test wants.
    # It waits again and again: a signal that comes between the line and one long wait would not end that.
    (tmp_path / "pydantic_settings.py").write_text(
        "import time\nprint('loading', flush=True)\nwhile True:\n    time.sleep(0.01)\n"
    )
    with relay.from_nothing("run") as process:
        assert process.stdout
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=SECONDS)

    assert process.returncode == 128 + number
    assert said == ""


@pytest.mark.slow("runs the demo")
def test_ctrl_c_ends_the_demo_in_one_line() -> None:
    """Whoever has seen enough is told that nothing is left behind."""
    with subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if "orders come in" in line:
                break
        os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts the relays too
        shown, complaints = process.communicate(timeout=SECONDS)

    assert process.returncode == 128 + signal.SIGINT, complaints
    assert complaints == ""
    assert shown.splitlines()[-1].endswith("stopped early; the servers and their data are gone")


def test_the_relay_waits_for_a_database_that_is_away_at_its_start(relay: Commands) -> None:
    """It logs, backs off, and publishes when the database appears, on its own."""
    with Stack.start([Part.POSTGRES]) as own:
        postgres = own.postgres
        assert isinstance(postgres, EmbeddedPostgres)
        with psycopg.connect(postgres.url) as connection:
            schema.migrate(connection, "public", schema.newest())
            emit(connection, event())
        postgres.stop()

        with relay.background(
            "run", DATABASE_URL=postgres.url, RELAY_OUTAGE_MAX_MS="500", RELAY_LOG_LEVEL="debug"
        ) as process:
            failed = wait_for(process, "pass_failed")
            assert "Connection refused" in failed["error"]
            wait_for(process, "pass_failed")
            postgres.start()
            wait_for(process, "started")
            wait_for(process, "batch")
            assert count(postgres.url, PUBLISHED) == 1
            code, _ = terminate(process)

    assert code == 0


async def test_the_relay_waits_for_a_broker_that_is_away_at_its_start(relay: Commands, database: str) -> None:
    """It logs and backs off; the row stays as it was."""
    emitted(database)
    with relay.background(
        "run", PUBSUB_EMULATOR_HOST=closed_port(), RELAY_OUTAGE_MAX_MS="500", RELAY_LOG_LEVEL="debug"
    ) as process:
        assert wait_for(process, "publish_failed")["code"] == "UNAVAILABLE"
        wait_for(process, "publish_failed")
        code, _ = terminate(process)

    assert code == 0
    assert count(database, PENDING) == 1


def test_a_log_that_nobody_takes_does_not_stop_the_relay(relay: Commands, database: str) -> None:
    """The reader of stderr is gone, every write fails, and events go out."""
    with relay.background("run", RELAY_POLL_MS="20", RELAY_POLL_JITTER_MS="0") as process:
        assert process.stderr
        process.stderr.close()
        process.stderr = None
        for number in range(3):
            emitted(database, number)
            until(lambda: count(database, PENDING) == 0, "the event is published")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def test_a_terminal_gets_lines_for_people(relay: Commands, database: str, tmp_path: Path) -> None:
    """JSON is for machines."""
    emitted(database)
    ours, theirs = os.openpty()
    try:
        environment = {**os.environ, **relay.settings, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            relay._command(("tick",)), env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, text=True
        ) as process:
            said, _ = process.communicate(timeout=SECONDS)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert json.loads(said)["runners"]["publish"]["updated"] == 1
    assert "batch" in shown
    assert not shown.startswith("{")
