"""`relay grants` as an owner runs it: what it prints, what it does, and what it refuses in words."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay import emit
from relay.outbox import schema
from relay.testing.databases import fresh_database
from tests.support.commands import Commands
from tests.support.outbox import count, event

PASSWORD = "only-in-this-test"  # noqa: S105 -- of a role that lasts as long as its test
ALL = ("--emitter", "--relay", "--viewer")


@pytest.fixture
def relay(database: str, tmp_path: Path) -> Commands:
    """The command line, as the owner of an outbox."""
    return Commands({"DATABASE_URL": database}, tmp_path)


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role whose name needs its quotes, and that has no rights."""
    name = f'a "Role" of; {uuid4().hex}'
    execute(database, "create role {} login password {}", sql.Identifier(name), sql.Literal(PASSWORD))
    yield name
    execute(database, "drop owned by {}", sql.Identifier(name))
    execute(database, "drop role {}", sql.Identifier(name))


def execute(url: str, statement: str, *parts: sql.Composable) -> list[Any]:
    """Do something as the superuser."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(sql.SQL(statement).format(*parts))
        return done.fetchall() if done.description else []


def rights(url: str) -> list[Any]:
    """Every right on the outbox and its schema."""
    return execute(
        url,
        """
        select 'relation', relname::text, relacl::text from pg_class where relname like 'outbox%'
        union all
        select 'column', attrelid::regclass::text || attname, attacl::text from pg_attribute where attacl is not null
        union all
        select 'function', oid::regprocedure::text, proacl::text from pg_proc where proname like 'outbox%'
        union all
        select 'schema', nspname, nspacl::text from pg_namespace
        order by 1, 2""",
    )


def owner_of(url: str) -> str:
    """Who has made the outbox: the superuser of the tests."""
    return str(conninfo_to_dict(url)["user"])


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence of a call that was wrong."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_without_apply_no_database_is_asked(tmp_path: Path) -> None:
    """It is SQL for somebody else to read, and to run."""
    done = Commands({"RELAY_SCHEMA": 'x"y'}, tmp_path)(
        "grants", "--emitter", "a b", "--emitter", 'c"d', "--emitter", "a b"
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("grant ")] == [
        'grant usage on schema "x""y" to "a b";',
        'grant execute on function "x""y"."outbox_emit"(jsonb) to "a b";',
        'grant usage on schema "x""y" to "c""d";',
        'grant execute on function "x""y"."outbox_emit"(jsonb) to "c""d";',
    ]


def test_what_is_printed_is_what_apply_does(relay: Commands, database: str, role: str, template: str) -> None:
    """With every option, for a name that needs its quotes; once more, it changes nothing."""
    call = ["grants", *(word for option in ALL for word in (option, role))]
    with fresh_database(database, template) as other:
        printed = relay(*call)
        execute(other, printed.stdout.replace("{", "{{"))
        applied = relay(*call, "--apply")
        assert applied.returncode == 0, applied.stderr
        assert rights(database) == rights(other)
    again = relay(*call, "--apply")
    before = rights(database)

    assert [line for line in applied.stdout.splitlines() if "grant" in line][:-1] == [
        line for line in printed.stdout.splitlines() if line.startswith("grant")
    ]
    assert applied.stdout.splitlines()[-1].startswith("granted in schema 'public' of database 'test_")
    assert (again.returncode, rights(database)) == (0, before)
    with psycopg.connect(make_conninfo(database, user=role, password=PASSWORD)) as connection:
        emit(connection, event())
    assert count(database) == 1


def test_revoke_takes_back_all_that_was_granted(relay: Commands, database: str, role: str) -> None:
    """Also what an emitter needed of the older schema; the role can be dropped without more."""
    before = rights(database)
    call = ["grants", *(word for option in ALL for word in (option, role))]
    relay(*call, "--apply")
    execute(database, "grant insert, select (id, event_id, dedup_key) on outbox_events to {}", sql.Identifier(role))

    printed = relay(*call, "--revoke")
    done = relay(*call, "--revoke", "--apply")

    assert done.returncode == 0, done.stderr
    assert "granted" not in printed.stdout
    assert done.stdout.splitlines()[-1].startswith("taken back in schema 'public'")
    assert role not in str(rights(database)).replace('\\"', '"').replace('""', '"')
    assert [(kind, name) for kind, name, _ in rights(database)] == [(kind, name) for kind, name, _ in before]
    execute(database, "drop role {}", sql.Identifier(role))
    execute(database, "create role {}", sql.Identifier(role))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "grants needs a role: --emitter, --relay or --viewer"),
        (("--apply",), "grants needs a role"),
        (("--emitter", "public"), "--emitter public is everybody"),
        (("--viewer", ""), "is no name of a role"),
        (("--relay", "é" * 32), "those have 1 to 63 bytes"),
        (
            ("--relay", "nobody", "--emitter", "nowhere", "--apply"),
            "there is no role 'nowhere', 'nobody' on this server",
        ),
    ],
)
def test_a_name_that_is_none_is_refused(relay: Commands, database: str, arguments: tuple[str, ...], said: str) -> None:
    """Everybody is not a role; a long name would be cut, and be another's."""
    before = rights(database)
    assert said in refusal(relay("grants", *arguments))
    assert rights(database) == before


def test_one_missing_role_leaves_everything_as_it_was(relay: Commands, database: str, role: str) -> None:
    """All or nothing."""
    before = rights(database)
    refusal(relay("grants", "--emitter", role, "--viewer", "nobody", "--apply"))
    assert rights(database) == before


def test_only_the_owner_grants(relay: Commands, database: str, role: str) -> None:
    """Postgres itself would warn, grant nothing, and be done."""
    tables = "outbox_events, outbox_migrations, outbox_actions"
    execute(database, f"grant select on {tables} to {{}} with grant option", sql.Identifier(role))
    done = relay(
        "grants", "--viewer", role, "--apply", DATABASE_URL=make_conninfo(database, user=role, password=PASSWORD)
    )
    assert f"does not own the table archive_exports of schema 'public'; its owner, {owner_of(database)!r}" in refusal(
        done
    )


def test_an_owner_without_the_schema_is_told_what_its_owner_has_to_run(
    relay: Commands, bare_database: str, database: str, role: str
) -> None:
    """Who may create in a schema need not own it."""
    viewer = f"viewer_{uuid4().hex}"
    execute(bare_database, "create schema shared")
    execute(bare_database, "grant create, usage on schema shared to {}", sql.Identifier(role))
    execute(database, "create role {}", sql.Identifier(viewer))
    url = make_conninfo(bare_database, user=role, password=PASSWORD)
    try:
        assert relay("migrate", DATABASE_URL=url, RELAY_SCHEMA="shared").returncode == 0
        done = relay("grants", "--viewer", viewer, "--apply", DATABASE_URL=url, RELAY_SCHEMA="shared")
        assert f'Have its owner run: grant usage on schema "shared" to "{viewer}"' in refusal(done)
        execute(bare_database, "grant usage on schema shared to {}", sql.Identifier(viewer))
        done = relay("grants", "--viewer", viewer, "--apply", DATABASE_URL=url, RELAY_SCHEMA="shared")
        assert done.returncode == 0, done.stderr
    finally:
        execute(bare_database, "drop owned by {}, {} cascade", sql.Identifier(viewer), sql.Identifier(role))
        execute(database, "drop role {}", sql.Identifier(viewer))


def test_the_owner_keeps_its_rights(relay: Commands, database: str) -> None:
    """outbox_emit acts with them: without them nobody could emit."""
    owner = owner_of(database)
    done = relay("grants", "--revoke", "--emitter", owner, "--apply")
    assert f"role {owner!r} owns the outbox, which works with its rights: they are not taken" in refusal(done)
    with psycopg.connect(database) as connection:
        assert emit(connection, event()).inserted


def test_without_an_outbox_there_is_nothing_to_grant(relay: Commands, bare_database: str, role: str) -> None:
    """Nor on one that is too old for it."""
    call = ("grants", "--emitter", role, "--apply")
    assert "has no outbox in schema 'public'" in refusal(relay(*call, DATABASE_URL=bare_database))
    with psycopg.connect(bare_database) as connection:
        schema.migrate(connection, "public", 5)
    assert "relay grants needs version 6 of schema 'public', which is at 5; bring it up with" in refusal(
        relay(*call, DATABASE_URL=bare_database)
    )
