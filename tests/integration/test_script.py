"""The schema's steps as one statement of SQL: through psql and other tools, in a transaction of theirs or in none."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from relay.dev.account import postgres_account
from relay.dev.programs import postgres_programs
from relay.dev.sandbox import Sandbox
from relay.outbox import ladder, schema, script
from tests.support.portrait import portrait

NEWEST = ladder.newest()


@pytest.fixture
def connection(bare_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database without an outbox."""
    with psycopg.connect(bare_database, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def psql() -> Iterator[Path]:
    """The server's own client."""
    with Sandbox(postgres_account()) as sandbox:
        yield postgres_programs(sandbox) / "psql"


def fed(psql: Path, url: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What psql makes of a file."""
    parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    return subprocess.run(
        [
            psql,
            "-h",
            parts["host"],
            "-p",
            parts["port"],
            "-U",
            parts["user"],
            *options,
            "-X",
            "-f",
            file,
            parts["dbname"],
        ],
        env={**os.environ, "PGPASSWORD": parts["password"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("--set", "ON_ERROR_STOP=1"), ("--single-transaction",)])
def test_psql_runs_it_or_says_why_not(
    psql: Path, connection: psycopg.Connection[Any], bare_database: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A script that was run already changes nothing, and says which version is there; so does one for later."""
    file = tmp_path / "outbox.sql"
    for start, target in ((0, 2), (2, NEWEST), (NEWEST, 1)):
        file.write_text(script.between("public", start, target))
        done = fed(psql, bare_database, file, *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert schema.version(connection, "public") == target
        before = portrait(connection)

        again = fed(psql, bare_database, file, *options)
        assert (again.returncode == 0) == ("ON_ERROR_STOP=1" not in options)
        assert f"is at version {target}, this script goes from {start} to {target}; nothing was changed" in again.stderr
        assert "Print it for the version that is there" in again.stderr
        assert portrait(connection) == before


@pytest.mark.parametrize("start", range(1, NEWEST))
def test_it_refuses_a_database_without_an_outbox(connection: psycopg.Connection[Any], start: int) -> None:
    """Not by an error about a table that is missing somewhere in the middle."""
    with pytest.raises(
        pg.ObjectNotInPrerequisiteState, match=f"at version 0, this script goes from {start} to {NEWEST}"
    ):
        connection.execute(script.between("public", start, NEWEST).encode())
    assert portrait(connection) == []


def test_a_tool_that_wraps_it_in_a_transaction_can_take_it_back(connection: psycopg.Connection[Any]) -> None:
    """It neither begins nor commits, and leaves the tool's settings as they were."""
    connection.execute("create schema tools; set search_path to tools; set lock_timeout to '7s'")
    settings = "select current_setting('search_path'), current_setting('lock_timeout')"
    with connection.transaction(force_rollback=True):
        connection.execute(script.between("public", 0, NEWEST).encode())
        assert connection.execute(settings).fetchone() == ("tools", "7s")
        connection.execute("create table history (id integer)")
        assert connection.execute("select to_regclass('tools.history') is not null").fetchone() == (True,)
        assert schema.version(connection, "public") == NEWEST
    assert schema.version(connection, "public") == 0

    connection.execute(script.between("public", 0, NEWEST).encode())
    assert connection.execute(settings).fetchone() == ("tools", "7s")


async def test_a_driver_that_prepares_every_statement_takes_it(bare_database: str) -> None:
    """Asyncpg allows one command in each."""
    parts: dict[str, Any] = conninfo_to_dict(bare_database)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "database": "dbname"}
    connection = await asyncpg.connect(**{name: parts[part] for name, part in names.items()})
    try:
        statement = await connection.prepare(script.between("public", 0, NEWEST))
        await statement.fetch()
        assert await connection.fetchval("select max(version) from outbox_migrations") == NEWEST
    finally:
        await connection.close()


@pytest.mark.parametrize("name", ["events", 'Odd "schema"; $outbox$ --\n', "it's \\ 50%s :MI", "ends$$ a $_$ body"])
def test_it_lives_in_any_schema(connection: psycopg.Connection[Any], name: str) -> None:
    """And refuses by that schema's version, whatever stands in public."""
    connection.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
    schema.migrate(connection, "public", NEWEST)
    connection.execute(script.between(name, 0, 3).encode())
    connection.execute(script.between(name, 3, NEWEST).encode())
    assert schema.version(connection, name) == NEWEST
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match=f"is at version {NEWEST}"):
        connection.execute(script.between(name, 0, 3).encode())
    connection.execute(script.between(name, NEWEST, 0).encode())
    assert schema.version(connection, name) == 0
    assert schema.version(connection, "public") == NEWEST


def test_strings_that_keep_their_backslashes_are_not_relied_on(connection: psycopg.Connection[Any]) -> None:
    """A setting of the session's says what a backslash means."""
    connection.execute("set standard_conforming_strings to off; set escape_string_warning to off")
    connection.execute('create schema "a\\b\'c"')
    connection.execute(script.up("a\\b'c", NEWEST).encode())
    assert schema.version(connection, "a\\b'c") == NEWEST


@pytest.mark.parametrize("script_of", [lambda: script.between("public", 1, 2), lambda: script.down("public", 0)])
def test_its_own_words_are_not_made_by_a_function_of_somebody_elses(
    connection: psycopg.Connection[Any], script_of: Callable[[], str]
) -> None:
    """Whoever may create in the schema could have it run what they like, with the rights of whoever migrates."""
    schema.migrate(connection, "public", NEWEST)
    connection.execute("insert into outbox_migrations (version, name) values (999, 'from_the_future')")
    for arguments in ("text, text", "text, text, integer", "text, text, text", "text, name, text"):
        connection.execute(
            f"create function format({arguments}) returns text language plpgsql "
            "as $$ begin raise exception 'theirs'; end $$".encode()
        )
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match='the outbox in schema "public" is at version 999'):
        connection.execute(script_of().encode())
