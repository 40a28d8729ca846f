"""RELAY_LOG_REDACT on every road by which the text of an error leaves a relay: a secret comes in, and nowhere out."""

import http.client
import json
import signal
from pathlib import Path

import psycopg
import pytest

from relay import emit
from relay.dev.pubsub import Fault, set_faults
from tests.support import old_outboxes
from tests.support.commands import ROOT, SECONDS, Commands
from tests.support.outbox import FAILED, PUBLISHED, count, event
from tests.support.pubsub import PubSubSide
from tests.support.waiting import until

SECRET = "Quuxley"  # noqa: S105 -- what must not be left
HOOKS = """
def redact(line):
    return {name: value.replace("Quuxley", "***") if isinstance(value, str) else value for name, value in line.items()}

def breaks(line):
    raise ValueError(line)
"""
POISON = Fault(
    "INVALID_ARGUMENT",
    method="Publish",
    detail=f"customer {SECRET} has moved",
    attribute="aggregate_id",
    value=SECRET,
)


@pytest.fixture(params=["company_hooks:redact", "company_hooks:breaks"])
def hooked(request: pytest.FixtureRequest, relay: Commands, tmp_path: Path) -> Commands:
    """The command line with a hook: one that works, and one that fails and says what it was given."""
    (tmp_path / "company_hooks.py").write_text(HOOKS, encoding="utf-8")
    relay.settings |= {"RELAY_LOG_REDACT": request.param, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    return relay


def emit_about(database: str) -> int:
    """Two events, of which one is about the person that nobody may read of; its id."""
    with psycopg.connect(database) as connection:
        emit(connection, event(1))
        about = emit(connection, event(aggregate_id=SECRET, data={"name": SECRET}, ordering_key=SECRET))
        emit(connection, event(aggregate_id="2", ordering_key=SECRET))
    return about.sequence


def kept(database: str) -> str:
    """What the table keeps of errors."""
    with psycopg.connect(database) as connection:
        rows = connection.execute("select last_error, last_error_code from outbox_events where last_error is not null")
        return str(rows.fetchall())


def refuse_marks(database: str) -> None:
    """Have the database refuse, in words that hold the secret."""
    with psycopg.connect(database) as connection:
        connection.execute(f'alter table outbox_events add constraint "{SECRET}" check (message_id is null)'.encode())


async def test_what_a_broker_says_of_a_row(hooked: Commands, database: str, pubsub: PubSubSide) -> None:
    """Neither the table, nor the log, nor any command that looks has it; the others are published all the same."""
    row_id = str(emit_about(database))
    await set_faults(pubsub.address, POISON)

    said = [hooked("tick")]
    assert (count(database, FAILED), count(database, PUBLISHED)) == (1, 1)
    assert "INVALID_ARGUMENT" in kept(database)
    said += [
        hooked(*words.split())
        for words in (
            "failed list",
            "failed list --json",
            f"failed show {row_id}",
            f"failed show {row_id} --json",
            "status",
            "status --json",
            "check",
            "tick",
            "failed retry --all --dry-run",
            f"failed discard {row_id} --reason gone",
        )
    ]

    assert SECRET not in kept(database)
    for done in said:
        assert SECRET not in done.stdout + done.stderr, done.args


async def test_without_a_hook_each_of_these_would_tell(relay: Commands, database: str, pubsub: PubSubSide) -> None:
    """So that the test above is about something."""
    row_id = str(emit_about(database))
    await set_faults(pubsub.address, POISON)

    assert SECRET in relay("tick").stderr
    assert SECRET in kept(database)
    for words in ("failed list", f"failed show {row_id}", "status"):
        assert SECRET in relay(*words.split()).stdout
    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set published_at = null, message_id = null")
    refuse_marks(database)
    done = relay("tick")
    assert SECRET in done.stdout
    assert SECRET in done.stderr


def test_what_a_mapping_says_of_rows(hooked: Commands, database: str) -> None:
    """The database names what refused a row, and the names are the user's."""
    old_outboxes.home_made(database, rows=2)
    old_outboxes.run(
        database,
        f'create domain public."{SECRET}" as text constraint "{SECRET}" check (value is null)',
    )
    call = ("adopt", "--table", "shop.events", "--id", "id", "--pending", "sent_at is null", "--mark", "sent_at=now()")
    maps = ("event_type=kind", "aggregate_type='order'", f'aggregate_id=(id::text)::public."{SECRET}"', "data=payload")
    words = [*call, *(word for each in maps for word in ("--map", each))]

    said = [hooked(*words), hooked(*words, "--json")]

    for done in said:
        assert done.returncode == 1, done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert sum(found["rows"] for found in json.loads(said[1].stdout)["refused"].values()) == 2

    marks = [f'sent_at=(kind::public."{SECRET}")::timestamptz' if word == "sent_at=now()" else word for word in words]
    marked = hooked(*marks)
    assert "refused " in marked.stdout
    assert SECRET not in marked.stdout + marked.stderr


def test_what_operators_wrote_of_a_row(hooked: Commands, database: str) -> None:
    """Its history is shown with it."""
    row_id = str(emit_about(database))
    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set failed_at = now(), failure_reason = 'max_attempts'")
    assert hooked("failed", "discard", row_id, "--reason", f"{SECRET} asked", "--by", SECRET).returncode == 0

    for words in (("failed", "show", row_id), ("failed", "show", row_id, "--json")):
        done = hooked(*words)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_what_a_database_says(hooked: Commands, database: str) -> None:
    """The report of a tick, the sentence of a command, the log of a relay and what it tells probes."""
    with psycopg.connect(database) as connection:
        emit(connection, event())
    refuse_marks(database)

    ticked = hooked("tick")
    assert ticked.returncode == 1
    assert SECRET not in ticked.stdout + ticked.stderr
    assert json.loads(ticked.stdout)["runners"]["publish"]["error"]

    with hooked.background("run", RELAY_HTTP="127.0.0.1:0") as process:
        assert process.stderr
        lines = []
        for line in process.stderr:
            lines.append(line)
            if '"http_listening"' in line:
                port = int(json.loads(line)["port"])
            if '"pass_failed"' in line:
                break
        until(lambda: "the last pass failed" in probed(port), "the relay is not ready")
        answer = probed(port)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=SECONDS)
    assert SECRET not in answer + "".join(lines) + rest


def probed(port: int) -> str:
    """What a probe is told."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


async def test_what_a_broker_says_of_a_topic(hooked: Commands, pubsub: PubSubSide) -> None:
    """The commands that ask it, with and without JSON."""
    await set_faults(pubsub.address, Fault("UNAVAILABLE", detail=f"customer {SECRET} has moved"))
    for words in ("topics plan", "topics plan --json", "doctor", "doctor --json", "audit --subscription s"):
        done = hooked(*words.split())
        assert done.returncode == 1
        assert SECRET not in done.stdout + done.stderr, words


def test_a_hook_that_is_not_there_lets_nothing_pass(relay: Commands, database: str) -> None:
    """A command that fails says its code, and what is wrong with the setting."""
    with psycopg.connect(database) as connection:
        connection.execute("drop function outbox_uuid7(timestamptz)")

    done = relay("forget", "--aggregate", "user", "42", "--plan", RELAY_LOG_REDACT="no_such_module:redact")

    assert done.returncode == 1
    assert "relay: (redacted)\n" in done.stderr
    assert "uuid7" not in done.stderr
    assert "RELAY_LOG_REDACT is 'no_such_module:redact', which cannot be imported" in done.stderr
