"""`relay migrate` as a user and a release phase run it: exit codes, words, and no secret in either."""

import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay import emit
from relay.outbox import schema
from tests.support.commands import Commands
from tests.support.outbox import event

NEWEST = schema.newest()
SECRET = "hunter2secret"  # noqa: S105 -- what must not appear


@pytest.fixture
def migrate(bare_database: str, tmp_path: Path) -> Commands:
    """The command line on a database without an outbox."""
    return Commands({"DATABASE_URL": url(bare_database)}, tmp_path)


def url(conninfo: str, **other: Any) -> str:
    """The same database as a URL, as hosts of databases hand it out."""
    parts = {**conninfo_to_dict(conninfo), **other}
    return "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parts)


def version(conninfo: str) -> int:
    """The schema's version now."""
    with psycopg.connect(conninfo) as connection:
        return schema.version(connection, "public")


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence of a command that was refused."""
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1].startswith("relay: ")
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr + done.stdout
    return done.stderr


def test_it_creates_the_outbox_and_then_has_nothing_to_do(migrate: Commands, bare_database: str) -> None:
    """The release phase of every deploy calls it."""
    first = migrate("migrate")
    second = migrate("migrate")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.splitlines()[0] == "up   0001 outbox_events"
    assert len(first.stdout.splitlines()) == NEWEST + 1
    assert first.stdout.splitlines()[-1] == f"schema 'public' is at version {NEWEST}"
    assert second.stdout == f"schema 'public' is at version {NEWEST}; nothing to do\n"
    with psycopg.connect(bare_database) as connection:
        assert emit(connection, event()).inserted


def test_the_plan_takes_no_step(migrate: Commands, bare_database: str) -> None:
    """It lists what would be done, in either direction."""
    plan = migrate("migrate", "--plan")
    assert plan.returncode == 0, plan.stderr
    assert [line.split()[0] for line in plan.stdout.splitlines()] == ["up"] * NEWEST
    assert version(bare_database) == 0

    migrate("migrate")
    back = migrate("migrate", "--plan", "--to", "0")
    assert [line.split()[0] for line in back.stdout.splitlines()] == ["down"] * NEWEST
    assert version(bare_database) == NEWEST


def test_it_goes_to_any_version_and_back(migrate: Commands, bare_database: str) -> None:
    """The way back is refused only by what would be lost."""
    assert migrate("migrate", "--to", "1").returncode == 0
    assert version(bare_database) == 1
    migrate("migrate")
    with psycopg.connect(bare_database) as connection:
        emit(connection, event())

    refused = migrate("migrate", "--to", "0")
    assert "still holds 1 event(s) that were not published" in complaint(refused, 1)
    assert refused.stdout == ""
    assert version(bare_database) == NEWEST

    with psycopg.connect(bare_database) as connection:
        connection.execute("delete from outbox_events")
    done = migrate("migrate", "--to", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "schema 'public' is at version 0"
    assert version(bare_database) == 0


def test_the_way_back_is_refused_with_what_waits_by_its_kind(migrate: Commands, bare_database: str) -> None:
    """Each kind has another remedy; what was discarded does not count, and the remedy for failed rows works."""
    migrate("migrate")
    later = datetime(2030, 1, 1, tzinfo=UTC)
    with psycopg.connect(bare_database) as connection:
        emit(connection, [event(1), event(2), event(3, available_at=later), event(4, ordering_key="k"), event(5)])
        connection.execute(
            "update outbox_events set failed_at = now(), failure_reason = 'non_retryable' where aggregate_id = '5'"
        )

    said = complaint(migrate("migrate", "--to", "0"), 1)

    assert "still holds 5 event(s)" in said
    assert "2 pending, 1 scheduled, 1 with an ordering_key (not relayed by this release). 1 failed" in said
    assert said.endswith("Nothing was changed.\n")
    remedy = said.partition("discarded: ")[2].partition(".")[0]
    with psycopg.connect(bare_database) as connection:
        assert connection.execute(remedy.encode()).rowcount == 1
    assert "still holds 4 event(s)" in complaint(migrate("migrate", "--to", "0"), 1)


def test_the_printed_sql_does_the_same(migrate: Commands, bare_database: str) -> None:
    """No database is asked for it, and none has to be named."""
    printed = migrate("migrate", "--sql", DATABASE_URL="")
    assert printed.returncode == 0, printed.stderr

    with psycopg.connect(bare_database) as connection:
        connection.execute(printed.stdout.encode())
    assert migrate("migrate").stdout == f"schema 'public' is at version {NEWEST}; nothing to do\n"


def test_the_printed_sql_goes_on_from_a_version(migrate: Commands, bare_database: str) -> None:
    """Whoever migrates by psql prints the steps since the last time."""
    for start, target in ((0, 1), (1, NEWEST)):
        script = migrate("migrate", "--sql", "--from", str(start), "--to", str(target))
        with psycopg.connect(bare_database) as connection:
            connection.execute(script.stdout.encode())
        assert version(bare_database) == target
    assert migrate("migrate", "--plan").stdout.endswith("nothing to do\n")


def test_the_printed_sql_refuses_a_database_of_another_version(migrate: Commands, bare_database: str) -> None:
    """Also one that is there already: what was run twice says so, and changes nothing."""
    script = migrate("migrate", "--sql", "--from", "1", "--to", "2").stdout.encode()
    with psycopg.connect(bare_database, autocommit=True) as connection:
        for there in (0, 2, NEWEST):
            migrate("migrate", "--to", str(there))
            with pytest.raises(
                pg.ObjectNotInPrerequisiteState, match=f"at version {there}, this script goes from 1 to 2"
            ):
                connection.execute(script)
            assert version(bare_database) == there


def test_the_printed_sql_goes_back_in_another_schema(migrate: Commands, bare_database: str) -> None:
    """RELAY_SCHEMA names it; what stands in public is not touched."""
    migrate("migrate")
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute("create schema events")
        migrate("migrate", RELAY_SCHEMA="events")
        back = migrate("migrate", "--sql", "--from", str(NEWEST), "--to", "1", RELAY_SCHEMA="events")
        connection.execute(back.stdout.encode())
        assert schema.version(connection, "events") == 1
    assert version(bare_database) == NEWEST


def test_a_start_that_leads_nowhere_is_refused(migrate: Commands) -> None:
    """An empty script would look like success."""
    assert "there is no step from schema version" in complaint(migrate("migrate", "--sql", "--from", str(NEWEST)), 2)
    assert "--from goes with --sql" in complaint(migrate("migrate", "--from", "1"), 2)


@pytest.mark.slow("starts many processes")
def test_all_of_many_starts_succeed(migrate: Commands, bare_database: str) -> None:
    """Eight processes: one does the work, the others wait for it."""
    command, environment = migrate._command(("migrate",)), migrate._environment({})
    started = [
        subprocess.Popen(
            command, env=environment, cwd=migrate._folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    outputs = [process.communicate(timeout=60) for process in started]

    assert [process.returncode for process in started] == [0] * 8, outputs
    assert sum("outbox_events" in said for said, _ in outputs) == 1
    assert sum("nothing to do" in said for said, _ in outputs) == 7
    assert version(bare_database) == NEWEST


def test_a_schema_of_a_later_release_is_refused(migrate: Commands, bare_database: str) -> None:
    """Neither migrates nor publishes what it does not know."""
    migrate("migrate")
    with psycopg.connect(bare_database) as connection:
        connection.execute("insert into outbox_migrations (version, name) values (999, 'later')")

    newer = f"schema 'public' is at version 999, newer than the {NEWEST} of this code; deploy the release"
    assert newer in complaint(migrate("migrate"), 2)
    tick = migrate("tick", PUBSUB_PROJECT_ID="p", PUBSUB_EMULATOR_HOST="127.0.0.1:1")
    assert newer in complaint(tick, 2)


def test_the_outbox_lives_in_another_schema(migrate: Commands, bare_database: str) -> None:
    """RELAY_SCHEMA names it; whoever emits has it on the search_path."""
    missing = complaint(migrate("migrate", RELAY_SCHEMA="events"), 2)
    assert "has no schema 'events'; create it, or name another one in RELAY_SCHEMA" in missing
    assert missing == complaint(migrate("migrate", "--plan", RELAY_SCHEMA="events"), 2)

    with psycopg.connect(bare_database) as connection:
        connection.execute("create schema events")
    done = migrate("migrate", RELAY_SCHEMA="events")
    assert done.returncode == 0, done.stderr
    with psycopg.connect(make_conninfo(bare_database, options="-c search_path=public,events")) as connection:
        emit(connection, event())
        stored = connection.execute("select count(*) from events.outbox_events").fetchone()
    assert stored == (1,)


@pytest.mark.parametrize("target", ["99", "-1"])
def test_a_version_that_does_not_exist_is_refused(migrate: Commands, target: str) -> None:
    """With what there is."""
    said = complaint(migrate("migrate", "--to", target), 2)
    assert said == f"relay: there is no schema version {target}; this code knows 0 to {NEWEST}\n"


def test_an_outbox_that_is_missing_is_named_with_the_remedy(migrate: Commands) -> None:
    """The first start of a relay before its first migration."""
    said = complaint(migrate("tick", PUBSUB_PROJECT_ID="p", PUBSUB_EMULATOR_HOST="127.0.0.1:1"), 2)
    assert "has no outbox in schema 'public'; create it with: python -m relay migrate" in said


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", "DATABASE_URL is not set"),
        (f"postgresql://user:{SECRET}@host:5432/db?nonsense", "DATABASE_URL is not a connection string"),
        (f"postgresql://user:a@{SECRET}@127.0.0.1:1/db", "percent-encode the characters"),
        (f"postgresql://user:{SECRET}/x@127.0.0.1:1/db", "percent-encode the characters"),
        (f"postgresql://user:{SECRET}@127.0.0.1:notaport/db", "its port is not a number from 1 to 65535"),
        (f"postgresql://user:{SECRET}@127.0.0.1:99999/db", "its port is not a number from 1 to 65535"),
        (f"postgresql://user:{SECRET}@127.0.0.1:0/db", "its port is not a number from 1 to 65535"),
        (f"postgresql://user:{SECRET}", "its port is not a number from 1 to 65535"),
        (f"postgresql://user:{SECRET}@127.0.0.1:1/db?sslmode=perhaps", "invalid sslmode value"),
        (f"postgresql://user:{SECRET}@127.0.0.1:1/db?connect_timeout=soon", "connect_timeout"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_before_anything_is_asked(
    migrate: Commands, wrong: str, words: str
) -> None:
    """A part of a password that was not percent-encoded must not show up as a host."""
    assert words in complaint(migrate("migrate", DATABASE_URL=wrong), 2)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"password": SECRET}, "password authentication failed"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody_at_all", "password": SECRET}, "authentication failed"),
    ],
)
def test_what_the_server_refuses_for_good_is_a_configuration_error(
    migrate: Commands, bare_database: str, other: dict[str, str], words: str
) -> None:
    """No restart would help."""
    assert words in complaint(migrate("migrate", DATABASE_URL=url(bare_database, **other)), 2)


def test_a_server_that_is_away_is_a_failure(migrate: Commands, bare_database: str) -> None:
    """A restart may help; the sentence says where it was looked for."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        away = url(bare_database, host="127.0.0.1", port=port, password=SECRET)
        said = complaint(migrate("migrate", DATABASE_URL=away), 1)
    assert f'connection to server at "127.0.0.1", port {port} failed: Connection refused' in said
