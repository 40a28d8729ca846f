"""Old and new releases side by side in a deploy: each works on the schema before its own, on its own, and after it."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.outbox import grants
from tests.support.commands import Commands, terminate
from tests.support.outbox import FAILED, PUBLISHED, count
from tests.support.pubsub import Channel
from tests.support.releases import (
    FIRST_WITH_NEIGHBOURS,
    NEWEST,
    NoHistoryError,
    previous_code,
    set_version,
)
from tests.support.roles_of_tests import ROLES
from tests.support.waiting import until

pytestmark = pytest.mark.slow("installs the release before this one")

NEIGHBOURS = (NEWEST - 1, NEWEST + 1)


@pytest.fixture
def outbox(relay: Commands, bare_database: str) -> Commands:
    """The command line on a database that has no outbox yet."""
    relay.settings["DATABASE_URL"] = bare_database
    return relay


def deploy(url: str, version: int) -> None:
    """Have the schema be of this version, and the roles with the rights that are theirs on it, and no others."""
    # What is granted may be of this schema alone; a step back leaves the rest, and gives emitters what they need then.
    set_version(url, max(version, NEWEST))
    with psycopg.connect(url) as owner:
        for statement in grants.statements("public", ROLES.grantees):
            owner.execute(statement.encode())
    if version < NEWEST:
        set_version(url, version)


def line(number: int, **fields: Any) -> str:
    """An event for `relay emit --file -`."""
    aggregate = {"event_type": "order.paid", "aggregate_type": "order", "aggregate_id": str(number)}
    return json.dumps({**aggregate, "data": {"number": number}, **fields})


def execute(url: str, statement: str, *values: Any) -> None:
    """Do something that no command does."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)


def fine(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that went well has printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def emit(relay: Commands, *lines: str) -> list[bool]:
    """Store events; answer with which of them were inserted."""
    said = fine(relay("emit", "--file", "-", "--json", stdin="\n".join(lines)))
    return [json.loads(each)["inserted"] for each in said.splitlines()]


def spoil(url: str, *numbers: int) -> None:
    """Give rows an attribute that no message may have; they fail at their first attempt."""
    spoilt = """update outbox_events set attributes = '{"": "x"}' where aggregate_id = any(%s)"""
    execute(url, spoilt, [str(number) for number in numbers])


def works(relay: Commands, channel: Channel) -> None:
    """Events are stored, published in order, fail, are looked at, retried, discarded and audited; a relay is woken."""
    url = relay.settings["DATABASE_URL"]
    ordered = [line(number, ordering_key="k") for number in (3, 4, 5)]
    assert emit(relay, line(1), line(2), line(1, dedup_key="d"), *ordered) == [True] * 6
    assert emit(relay, line(1, dedup_key="d")) == [False]
    spoil(url, 2, 4)

    assert json.loads(fine(relay("tick")))["runners"]["publish"]["updated"] == 3

    assert json.loads(fine(relay("status", "--json")))["blocked"]["rows_behind"] == 1
    assert relay("check").returncode == 1
    rows = json.loads(fine(relay("failed", "list", "--json")))["rows"]
    first, second = (row["id"] for row in sorted(rows, key=lambda row: row["ordering_key"] or ""))
    fine(relay("failed", "show", str(first)))
    execute(url, "update outbox_events set attributes = '{}' where failed_at is not null and ordering_key is not null")
    fine(relay("failed", "retry", str(second), "--by", "ana"))
    fine(relay("failed", "discard", str(first), "--reason", "a test", "--by", "ana"))

    with relay.background("run") as process:
        until(lambda: count(url, PUBLISHED) == 5, "the key goes on")
        until(lambda: asleep(url), "the relay sleeps")
        emit(relay, line(6))
        until(lambda: count(url, PUBLISHED) == 6, "the relay is woken")
        code, log = terminate(process)
    assert code == 0, log

    assert count(url, FAILED) == 1
    fine(relay("check"))
    history = json.loads(fine(relay("failed", "show", str(second), "--json")))["history"]
    assert [entry["action"] for entry in history] == ["retry"]
    audited = json.loads(fine(relay("audit", "--subscription", channel.subscription, "--quiet", "200ms", "--json")))
    assert (audited["expected"], audited["lost"], audited["discarded"]) == (6, 0, 1)


def asleep(url: str) -> bool:
    """Whether a relay holds the lock of those who sleep."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select from pg_locks where locktype = 'advisory' and classid = 2002873189 and granted "
            "and database = (select oid from pg_database where datname = current_database())"
        )
        return found.fetchone() is not None


def lines_of(log: str, name: str) -> Sequence[dict[str, Any]]:
    """The lines of this name."""
    return [found for found in map(json.loads, log.splitlines()) if found["event"] == name]


@pytest.mark.parametrize("version", NEIGHBOURS)
def test_this_release_works_on_the_schema_before_its_own_and_after_it(
    outbox: Commands, channel: Channel, bare_database: str, version: int
) -> None:
    """Whichever of code and schema a deploy brings first."""
    deploy(bare_database, version)
    works(outbox, channel)


def test_the_release_before_works_on_this_schema(
    outbox: Commands, channel: Channel, bare_database: str, tmp_path: Path
) -> None:
    """Its own code, from the repository's history, beside rows and records that only this release makes."""
    try:
        code = previous_code(tmp_path / "previous")
    except NoHistoryError as error:
        pytest.skip(f"the release before cannot be had: {error}")
    deploy(bare_database, NEWEST)
    if NEWEST - 1 < FIRST_WITH_NEIGHBOURS:
        execute(bare_database, "delete from outbox_migrations where version = %s", NEWEST)
    execute(
        bare_database,
        """
        insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type, attempt_count)
        values (gen_random_uuid(), 'redact', 'ana', 'asked for', 4711, gen_random_uuid(), 'order.paid', 0)""",
    )
    outbox.settings["PYTHONPATH"] = str(code)

    works(outbox, channel)


@pytest.mark.parametrize("version", NEIGHBOURS)
def test_a_relay_says_once_that_the_schema_is_not_its_own(
    outbox: Commands, channel: Channel, bare_database: str, version: int
) -> None:
    """However many sessions it opens; status and doctor say it too, and nothing of it on one's own."""
    del channel
    deploy(bare_database, version)
    emit(outbox, *(line(number) for number in range(20)))

    with outbox.background("run", RELAY_BATCH_SIZE="2", RELAY_SLOTS="3") as process:
        until(lambda: count(bare_database, PUBLISHED) == 20, "the backlog is out")
        until(lambda: asleep(bare_database), "the relay sleeps")
        _, log = terminate(process)
    ticked, status, told = outbox("tick"), outbox("status"), outbox("status", "--json")
    findings = {found["check"]: found for found in json.loads(outbox("doctor", "--json").stdout)["findings"]}

    (said,) = lines_of(log, "schema_differs")
    assert (said["level"], said["schema_version"], said["release_version"]) == ("warning", version, NEWEST)
    assert [found["schema_version"] for found in lines_of(log, "started")] == [version]
    assert len(lines_of(ticked.stderr, "schema_differs")) == 1
    assert f"version {version}, and this release is written for {NEWEST}" in status.stdout
    assert (json.loads(told.stdout)["schema_version"], json.loads(told.stdout)["release_version"]) == (version, NEWEST)
    assert findings["schema"]["status"] == "warn"
    assert findings["objects"]["status"] == "ok"


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(NEWEST - 2, "python -m relay migrate"), (NEWEST + 2, "deploy the release that migrated it")],
)
def test_two_versions_apart_is_refused_by_every_command(
    outbox: Commands, bare_database: str, version: int, remedy: str
) -> None:
    """What was never tried would fail row by row."""
    set_version(bare_database, version)
    commands = (
        *(("run",), ("tick",), ("status",), ("check",), ("topics", "plan"), ("failed", "list")),
        ("failed", "retry", "--all"),
        ("audit", "--subscription", "none"),
    )
    for command in commands:
        done = outbox(*command, DATABASE_URL=bare_database)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert f"is at version {version}" in done.stderr, command
        assert remedy in done.stderr, command
    doctor = outbox("doctor", DATABASE_URL=bare_database)
    assert doctor.returncode == 1
    assert remedy in doctor.stdout


def test_older_code_that_is_deployed_again_leaves_the_schema_as_it_is(outbox: Commands, bare_database: str) -> None:
    """Its release phase has nothing to do and must not fail; what it does not know it does not step back."""
    set_version(bare_database, NEWEST + 1)

    assert fine(outbox("migrate")) == (
        f"schema 'public' is at version {NEWEST + 1}, after the {NEWEST} of this release, which works on it; "
        "nothing to do\n"
    )
    assert outbox("migrate", "--to", str(NEWEST)).returncode == 2
    execute(bare_database, "insert into outbox_migrations (version, name) values (%s, 'still_later')", NEWEST + 2)
    assert outbox("migrate").returncode == 2
