"""`consumers migrate` as a user and a release phase run it: with a DATABASE_URL, and nothing else."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from consumers.inbox.schema import INBOX
from relay.outbox import schema as outbox
from relay.postgres.schema import Versions
from tests.support.commands import Commands
from tests.support.migrating import held_migrations
from tests.support.portrait import portrait, recorded

NEWEST = INBOX.newest()
UP_TO_DATE = f"schema 'public' is at version {NEWEST}; nothing to do\n"
SECRET = "hunter2secret"  # noqa: S105 -- what must not appear


@pytest.fixture
def consumers(bare_database: str, tmp_path: Path) -> Commands:
    """The command line on a database without an inbox."""
    return Commands({"DATABASE_URL": url(bare_database)}, tmp_path, program="consumers")


def url(conninfo: str, **other: Any) -> str:
    """The same database as a URL, as hosts of databases hand it out."""
    parts = {**conninfo_to_dict(conninfo), **other}
    return "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parts)


def version(conninfo: str, schema: str = "public") -> int:
    """The inbox's version now."""
    with psycopg.connect(conninfo) as connection:
        return Versions(INBOX).version(connection, schema)


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence of a command that was refused."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("consumers: ")
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert done.stdout == ""
    return done.stderr


def test_it_creates_the_inbox_and_then_has_nothing_to_do(consumers: Commands, bare_database: str) -> None:
    """The release phase of every deploy calls it; the plan before it takes no step."""
    plan = consumers("migrate", "--plan")
    assert version(bare_database) == 0
    first, second = consumers("migrate"), consumers("migrate")

    assert [done.returncode for done in (plan, first, second)] == [0, 0, 0], first.stderr
    steps = [f"up   {each.version:04d} {each.name}" for each in INBOX.migrations()]
    assert plan.stdout.splitlines() == steps
    assert first.stdout.splitlines() == [*steps, f"schema 'public' is at version {NEWEST}"]
    assert second.stdout == UP_TO_DATE
    assert version(bare_database) == NEWEST


def test_it_goes_back_and_up_again_beside_an_outbox(consumers: Commands, bare_database: str) -> None:
    """Each has its own record, and neither touches the other's tables."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        outbox.migrate(connection, "public")
        alone = portrait(connection)
        consumers("migrate")
        both = portrait(connection)

        back = consumers("migrate", "--to", "0")
        assert back.returncode == 0, back.stderr
        assert back.stdout.splitlines()[-1] == "schema 'public' is at version 0"
        assert portrait(connection) == alone

        assert consumers("migrate").returncode == 0
        assert portrait(connection) == both


def test_the_printed_sql_makes_the_same(consumers: Commands, bare_database: str) -> None:
    """No database is asked for it, and none has to be named."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        consumers("migrate")
        migrated = portrait(connection), recorded(connection, INBOX.record)
        consumers("migrate", "--to", "0")

        printed = consumers("migrate", "--sql", DATABASE_URL="")
        assert printed.returncode == 0, printed.stderr
        connection.execute(printed.stdout.encode())
        assert (portrait(connection), recorded(connection, INBOX.record)) == migrated
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refusal:
            connection.execute(printed.stdout.encode())
    assert f'the inbox in schema "public" is at version {NEWEST}, this script goes from 0' in str(refusal.value)
    assert "python -m consumers migrate --sql --from VERSION" in str(refusal.value)
    assert consumers("migrate").stdout == UP_TO_DATE


def test_of_two_at_once_one_does_the_work(consumers: Commands, bare_database: str) -> None:
    """The other waits for it, and finds it done."""
    command, environment = consumers._command(("migrate",)), consumers._environment({}, ("migrate",))
    with held_migrations(bare_database, waiting=2, lock=INBOX.lock):
        options: dict[str, Any] = {"env": environment, "cwd": consumers._folder, "text": True}
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) for _ in range(2)
        ]
    outputs = [process.communicate(timeout=60) for process in started]

    assert [process.returncode for process in started] == [0, 0], outputs
    assert sorted(said == UP_TO_DATE for said, _ in outputs) == [False, True]


def test_a_migration_of_the_outbox_is_not_waited_for(consumers: Commands, bare_database: str) -> None:
    """The two have different locks."""
    with psycopg.connect(bare_database) as connection:
        connection.execute("select pg_advisory_xact_lock(%s, %s)", outbox.MIGRATION_LOCK)
        assert consumers("migrate").returncode == 0


def test_it_lives_in_another_schema(consumers: Commands, bare_database: str) -> None:
    """INBOX_SCHEMA names it, and it has to be there."""
    missing = complaint(consumers("migrate", INBOX_SCHEMA="events"), 2)
    assert "has no schema 'events'; create it, or name another one in INBOX_SCHEMA" in missing
    with psycopg.connect(bare_database) as connection:
        connection.execute("create schema events")
    assert consumers("migrate", INBOX_SCHEMA="events").returncode == 0
    assert (version(bare_database), version(bare_database, "events")) == (0, NEWEST)


def test_a_role_without_the_right_is_told_which_one(consumers: Commands, bare_database: str) -> None:
    """Nobody but its owner creates in a schema."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        role = sql.Identifier(f"role_{connection.info.dbname}")
        connection.execute(sql.SQL("create schema events; create role {} login password 'p'").format(role))
        connection.execute(sql.SQL("grant usage on schema events to {}").format(role))
        try:
            theirs = url(bare_database, user=f"role_{connection.info.dbname}", password="p")  # noqa: S106 -- made up
            said = complaint(consumers("migrate", DATABASE_URL=theirs, INBOX_SCHEMA="events"), 2)
        finally:
            connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
    assert "may not change schema 'events': permission denied for schema events" in said
    assert "grant it create on the schema, or migrate as the owner of the inbox" in said


def test_a_schema_of_a_later_release_is_refused(consumers: Commands, bare_database: str) -> None:
    """Nobody but the release that knows it can take it back."""
    consumers("migrate")
    with psycopg.connect(bare_database) as connection:
        connection.execute("insert into inbox_migrations (version, name) values (999, 'later')")
    assert f"is at version 999, newer than the {NEWEST} of this code" in complaint(consumers("migrate"), 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db"),
        (f"postgresql+psycopg://user:{SECRET}@host/db", "DATABASE_URL names a driver in its scheme"),
        (f"sqlite://user:{SECRET}@host/db", "DATABASE_URL is not a connection string"),
        (f"postgresql://user:a@{SECRET}@127.0.0.1:1/db", "percent-encode the characters"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_before_anything_is_asked(
    consumers: Commands, wrong: str, words: str
) -> None:
    """Whatever of a password may be in it."""
    assert words in complaint(consumers("migrate", DATABASE_URL=wrong), 2)


def test_a_call_that_makes_no_sense_is_refused(consumers: Commands) -> None:
    """As the relay's is."""
    assert "there is no step from schema version" in complaint(consumers("migrate", "--sql", "--from", str(NEWEST)), 2)
    assert "--from goes with --sql" in complaint(consumers("migrate", "--from", "1"), 2)
    assert f"no schema version 99; this code knows 0 to {NEWEST}" in complaint(consumers("migrate", "--to", "99"), 2)


def test_a_server_that_is_away_is_a_failure(consumers: Commands, bare_database: str) -> None:
    """A restart may help; the sentence says where it was looked for."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        away = url(bare_database, host="127.0.0.1", port=port, password=SECRET)
        said = complaint(consumers("migrate", DATABASE_URL=away), 1)
    assert f'connection to server at "127.0.0.1", port {port} failed: Connection refused' in said


def test_what_stands_on_its_tables_is_a_failure(consumers: Commands, bare_database: str) -> None:
    """The sentence names it, so that it can be dropped."""
    consumers("migrate")
    with psycopg.connect(bare_database) as connection:
        connection.execute("create view stuck as select * from inbox_deliveries where suspect")
    said = complaint(consumers("migrate", "--to", "0"), 1)
    assert "cannot drop table inbox_deliveries" in said or "cannot drop desired object(s)" in said
    assert "something of your own uses it; nothing was changed" in said
    assert version(bare_database) == NEWEST
