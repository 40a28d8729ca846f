"""`relay forget` as an operator runs it: exit codes, words, JSON, ids from stdin, and what docs/forgetting.md shows."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import emit
from relay.kernel.line_redaction import Redaction
from tests.support.commands import ROOT, Commands
from tests.support.outbox import count, event

PAGE = ROOT / "docs/forgetting.md"
WHY = ("--reason", "ticket 815", "--by", "ana")
ERASER = "outbox_eraser"
PASSWORD = "only-in-this-test"  # noqa: S105 -- of a role that lasts as long as its test


@pytest.fixture
def outbox(database: str, tmp_path: Path) -> Commands:
    """The command line on an outbox with two published rows of user 42, and one of user 43; it needs no broker."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number, aggregate_type="user") for number in (42, 42, 43)])
        publish(connection)
    return Commands({"DATABASE_URL": database}, tmp_path)


def publish(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Have everything be published."""
    connection.execute("update outbox_events set published_at = clock_timestamp(), message_id = 'm'")


def test_a_plan_counts_and_changes_nothing(outbox: Commands, database: str) -> None:
    """It needs no reason; scripts read the same."""
    said = outbox("forget", "--aggregate", "user", "42", "--plan")
    told = json.loads(outbox("forget", "--aggregate", "user", "42", "--dry-run", "--json").stdout)

    assert (said.returncode, said.stdout) == (0, "2 row(s): 2 published\n2 would be removed\n"), said.stderr
    assert told["rows"] == {"published": 2, "discarded": 0, "pending": 0, "failed": 0}
    assert (told["plan"], told["refused"], told["done"], told["action_id"]) == (True, False, None, None)
    assert count(database) == 3


def test_what_was_done_is_said_and_can_be_said_again(outbox: Commands, database: str) -> None:
    """A second call finds nothing, which is fine."""
    done = outbox("forget", "--aggregate", "user", "42", *WHY)
    again = outbox("forget", "--aggregate", "user", "42", *WHY)

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"2 row\(s\): 2 published\n2 removed, recorded as [0-9a-f-]{36}\n", done.stdout)
    assert again.returncode == 0
    assert again.stdout == "0 row(s): the outbox keeps nothing about it\n0 removed\n", "nothing is recorded"
    assert count(database) == 1
    assert "operator  remove of 2 row(s) by ana at " in outbox("status").stdout


def test_rows_that_wait_refuse_it_with_what_to_do(outbox: Commands, database: str) -> None:
    """Nothing is changed; with --pending they go as well, and it is said that they are never published."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(42, aggregate_type="user"), event(42, aggregate_type="user")])
        connection.execute(
            """update outbox_events set failed_at = now(), failure_reason = 'max_attempts'
                where id = (select max(id) from outbox_events)"""
        )
    planned = outbox("forget", "--aggregate", "user", "42", "--plan")
    refused = outbox("forget", "--aggregate", "user", "42", *WHY, "--json")

    assert (planned.returncode, refused.returncode) == (0, 1)
    assert "would be refused: 1 row(s) wait to be published: wait for the relay" in planned.stdout
    assert "1 row(s) failed, and nobody has decided: python -m relay failed retry ID, or discard ID" in refused.stderr
    assert "or forget them as well with --pending: their events are then never published" in refused.stderr
    assert (json.loads(refused.stdout)["refused"], count(database)) == (True, 5)

    done = outbox("forget", "--aggregate", "user", "42", "--pending", *WHY)

    assert done.returncode == 0, done.stderr
    assert "2 of them had not been published, and never will be\n" in done.stdout
    assert count(database) == 1


def test_many_are_forgotten_in_one_walk(outbox: Commands, database: str) -> None:
    """From stdin, from the command line, and of several types."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(7, aggregate_type="customer"), event(aggregate_id="-", aggregate_type="user")])
        publish(connection)

    done = outbox("forget", "--aggregate", "user", "-", "--aggregate", "customer", "7", *WHY, stdin="42\n43\n-\n42")

    assert done.returncode == 0, done.stderr
    assert count(database) == 0


@pytest.mark.parametrize(
    ("stdin", "complaint"),
    [
        ("42\r\n", "line 1 of stdin has a carriage return or a byte order mark"),
        ("\ufeff42\n", "line 1 of stdin has a carriage return or a byte order mark"),
        ("42\n\n", "line 2 of stdin has 0 bytes; a row has 1 to 1,024"),
        ("4\0002\n", "line 1 of stdin has 3 bytes, a NUL among them"),
        (f"{'ü' * 513}\n", "line 1 of stdin has 1026 bytes"),
        ("", "stdin had no id; nothing was done"),
        ("\n".join(map(str, range(10_001))), "more than 10,000 aggregates are named"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_as_a_whole(
    outbox: Commands, database: str, stdin: str, complaint: str
) -> None:
    """Exit 2, with the line and without its content."""
    refused = outbox("forget", "--aggregate", "user", "-", *WHY, stdin=stdin)

    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert count(database) == 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--aggregate", "user", "42"), "--reason is missing: say why you do it"),
        (("--aggregate", "user", *WHY), "--aggregate 'user' names no id"),
        (("--aggregate", "user", "", *WHY), "--aggregate, id 1 has 0 bytes"),
        (("--aggregate", "", "42", *WHY), "--aggregate TYPE has 0 bytes"),
        (("--aggregate", "user", "-", "-", *WHY), "--aggregate asks for stdin twice"),
        (("--aggregate", "user", "x" * 1025, *WHY), "--aggregate, id 1 has 1025 bytes"),
        (("--aggregate", "user", "ana@example.com", "--reason", "asked by ana@example.com"), "--reason has the id"),
        (("--aggregate", "user", "42", "--reason", " "), "--reason has 1 characters, or only blanks"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(
    outbox: Commands, database: str, arguments: tuple[str, ...], complaint: str
) -> None:
    """Before the database is asked, and without an id in the words."""
    refused = outbox("forget", *arguments, stdin="42\n")

    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert "example.com" not in refused.stderr
    assert count(database) == 3


def test_a_list_that_is_no_text_is_refused(outbox: Commands, database: str, tmp_path: Path) -> None:
    """Its bytes are nobody's id."""
    listed = tmp_path / "ids"
    listed.write_bytes(b"42\n\xff\n")
    with listed.open("rb") as stdin:
        refused = subprocess.run(
            outbox._command(("forget", "--aggregate", "user", "-", *WHY)),
            env=outbox._environment({}),
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (refused.returncode, refused.stderr) == (2, "relay: line 2 of stdin is not UTF-8; nothing was done\n")
    assert count(database) == 3


def test_a_redacted_row_is_shown_with_its_history(outbox: Commands, database: str) -> None:
    """It says what it was; a retry skips it."""
    with psycopg.connect(database) as connection:
        (row_id,) = connection.execute("select min(id) from outbox_events").fetchone() or (0,)
    assert outbox("forget", "--aggregate", "user", "42", "--redact", *WHY).returncode == 0

    shown, retried = outbox("failed", "show", str(row_id)), outbox("failed", "retry", str(row_id))

    assert re.search(r"redacted +True\n", shown.stdout)
    assert "aggregate_id     (forgotten)\n" in shown.stdout
    assert re.search(
        r"history +\S+Z redact by ana \(role \w+\): ticket 815; it had been published at \S+Z\n", shown.stdout
    )
    assert retried.stdout.startswith("0 row(s) retried\n1 skipped")


def commands() -> list[str]:
    """What the page shows to be typed."""
    return re.findall(r"^    python -m relay (forget .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("command", commands())
def test_what_the_page_shows_works(outbox: Commands, command: str) -> None:
    """As it stands there; the ids of a file come from a pipe here."""
    words = shlex.split(command.partition(" < ")[0], comments=True)
    done = outbox(*words, stdin="42\n43\n")
    assert done.returncode == 0, done.stderr


def test_the_sql_of_the_page_runs(outbox: Commands, database: str) -> None:
    """The record of a command is one line."""
    assert outbox("forget", "--aggregate", "user", "42", *WHY).returncode == 0
    (query,) = re.findall(r"```sql\n(select .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with psycopg.connect(database, autocommit=True) as owner:
        (line,) = owner.execute(query.encode()).fetchall()
        owner.execute("vacuum (analyze) outbox_events")
    assert (line[1], line[3:]) == ("remove", ("ana", "ticket 815", 2))


def test_the_hook_of_the_page_takes_out_what_it_says() -> None:
    """Of an error's text, and of the field that names the user."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)  # noqa: S102 -- the page's own

    left = Redaction(module["redact"]).of_error("row_failed", RuntimeError("customer Smith has moved"))
    line = module["redact"]({"event": "row_failed", "aggregate_type": "user", "aggregate_id": "42", "attempt_count": 1})

    assert left.error == "RuntimeError: customer … has moved"
    assert line == {"event": "row_failed", "aggregate_type": "user", "aggregate_id": "…", "attempt_count": 1}


@pytest.fixture
def eraser(database: str) -> Iterator[str]:
    """The URL of a role with the grants of the page and nothing else."""
    granted = re.findall(r"```sql\n(grant .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    role = sql.Identifier(ERASER)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("revoke all on schema public from public")
        owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            for snippet in granted:
                owner.execute(snippet.encode())
            yield make_conninfo(database, user=ERASER, password=PASSWORD)
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(role))
            owner.execute(sql.SQL("drop role {}").format(role))


def test_the_grants_of_the_page_are_enough(outbox: Commands, eraser: str, database: str) -> None:
    """Either way, also for rows that wait."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(42, aggregate_type="user"), event(43, aggregate_type="user")])

    for way in (["42"], ["43", "--redact"]):
        done = outbox("forget", "--aggregate", "user", *way, "--pending", *WHY, DATABASE_URL=eraser)
        assert done.returncode == 0, done.stderr
    assert count(database) == count(database, "payload ? 'redacted'") == 2


@pytest.mark.parametrize(("column", "forged"), [("acted_as", "postgres"), ("acted_at", "2020-01-01")])
def test_the_record_says_itself_when_it_was_and_as_which_role(eraser: str, column: str, forged: str) -> None:
    """Whoever forgets cannot say that another role did, nor at another time."""
    forging = sql.SQL(
        """
        insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type, attempt_count, {})
        values (gen_random_uuid(), 'remove', 'ana', 'ticket 815', 1, gen_random_uuid(), 'a', 0, {})"""
    ).format(sql.Identifier(column), sql.Literal(forged))
    with psycopg.connect(eraser) as connection, pytest.raises(pg.InsufficientPrivilege):
        connection.execute(forging)


def test_a_role_that_may_not_is_told_where_its_grants_are(outbox: Commands, eraser: str, database: str) -> None:
    """Nothing is recorded that was not done."""
    with psycopg.connect(database) as owner:
        owner.execute(sql.SQL("revoke delete on outbox_events from {}").format(sql.Identifier(ERASER)))

    refused = outbox("forget", "--aggregate", "user", "42", *WHY, DATABASE_URL=eraser)

    assert refused.returncode == 1
    assert "may not do this: permission denied for table outbox_events; grant it what docs/forgetting.md" in (
        refused.stderr
    )
    with psycopg.connect(database) as owner:
        assert owner.execute("select count(*) from outbox_actions").fetchone() == (0,)
