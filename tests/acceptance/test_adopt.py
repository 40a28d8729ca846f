"""Moving in by the command line, the way docs/moving-in.md walks."""

import json
import re
import shlex
from pathlib import Path

import psycopg
import pytest

from tests.support import old_outboxes as old
from tests.support.commands import ROOT, Commands

PAGE = (ROOT / "docs/moving-in.md").read_text(encoding="utf-8")
SNIPPETS: list[tuple[str, str, str]] = re.findall(
    r"^```(sql|sh|toml) ([a-z-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
ROWS = {
    "home-made": "insert into shop.events (kind, order_id, payload) values ('order.paid', 7, '{\"n\": 1}')",
    "debezium": "insert into outboxevent (id, aggregatetype, aggregateid, type, payload) "
    "values (gen_random_uuid(), 'order', '7', 'order.paid', '{\"n\": 1}')",
    "rails": "insert into outbox_messages (event_name, record_type, record_id, body) "
    "values ('order.paid', 'Order', 7, '{\"n\": 1}')",
    "django": "insert into published values "
    "(gen_random_uuid(), null, 'order.paid', '{\"n\": 1}', now(), now(), 0, 1, '{}')",
}


@pytest.fixture
def command(database: str, tmp_path: Path) -> Commands:
    """The command line on this test's database."""
    return Commands({"DATABASE_URL": database}, tmp_path)


def words(snippet: str) -> list[str]:
    """The arguments of a command as a shell would hand them over."""
    python, module, relay, *arguments = shlex.split(snippet.replace("\\\n", " "))
    assert [python, module, relay] == ["python", "-m", "relay"]
    return arguments


def snippets(layout: str, kind: str) -> list[str]:
    """Those of one layout, in their order."""
    return [text for each, name, text in SNIPPETS if (each, name) == (kind, layout)]


@pytest.mark.parametrize("layout", list(ROWS))
def test_the_page_takes_over_each_layout(command: Commands, database: str, tmp_path: Path, layout: str) -> None:
    """Its tables, its commands, as they stand there: what waits is moved, and what comes is an event."""
    (table,) = snippets(layout, "sql")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(table.encode())
    old.run(database, ROWS[layout])
    for mapping in snippets(layout, "toml"):
        (tmp_path / "events.toml").write_text(mapping, encoding="utf-8")
    for snippet in snippets(layout, "sh"):
        if "--release" not in snippet:
            ran = command(*words(snippet))
            assert (ran.returncode, ran.stderr) == (0, "")
    old.run(database, ROWS[layout])
    stored = old.rows_of(
        database,
        "select event_type, aggregate_id, payload -> 'data', ordering_key is null from outbox_events order by id",
    )
    assert [row[0] for row in stored] == ["order.paid", "order.paid"]
    assert [row[2] for row in stored] == [{"n": 1}, {"n": 1}]
    if layout != "django":
        assert [row[1::2] for row in stored] == [("7", False), ("7", False)]


def test_every_snippet_of_the_page_is_of_a_layout_that_is_tried() -> None:
    """None is passed over."""
    assert {name for _, name, _ in SNIPPETS} == set(ROWS)
    assert len(SNIPPETS) == PAGE.count("\n```") / 2


def test_the_walk(command: Commands, database: str) -> None:
    """Compare, find, put right, take over, go on, give back: exit codes and words at each step."""
    old.home_made(database, rows=30, sent=10)
    old.run(database, "update shop.events set kind = null where id = 20")
    call = old.options()

    found = command(*call)
    assert found.returncode == 1
    assert "refused   1: has no event_type; row 20" in found.stdout
    assert "1 row(s) would be in the way of a take-over" in found.stdout
    refused = command(*call, "--take-over")
    assert refused.returncode == 1
    assert "nothing was changed" in refused.stdout
    assert old.rows_of(database, "select count(*) from outbox_events") == [(0,)]

    old.run(database, "update shop.events set sent_at = now() where id = 20")
    sent = command(*call)
    assert sent.returncode == 1
    assert "verdict   a take-over would take every row that waits; 1 that were sent are not" in sent.stdout
    old.run(database, "update shop.events set kind = 'order.paid', sent_at = null where id = 20")
    report = json.loads(command(*call, "--json", "--watch", "10ms").stdout)
    assert (report["clean"], report["pending"], report["sent"], report["would_be_taken"]) == (True, 20, 10, 20)
    assert report["oldest_pending_seconds"] > 0

    taken = command(*call, "--take-over", "--json")
    assert taken.returncode == 0, taken.stderr
    assert {name: json.loads(taken.stdout)[name] for name in ("taken_over", "moved", "stored")} == {
        "taken_over": True,
        "moved": 20,
        "stored": 20,
    }
    assert "taken over: each new row is an event" in command(*call).stdout

    released = command("adopt", "--table", "shop.events", "--release")
    assert (released.returncode, released.stdout) == (
        0,
        "shop.events is released: rows that are inserted wait again, for whoever sends them\n",
    )
    assert "was not taken over" in command("adopt", "--table", "shop.events", "--release").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--mapping", "events.toml"], "--mapping says it all"),
        (["--pending", "true"], "--id, --mark, --map is missing"),
        ([*old.options()[3:], "--watch", "1s", "--take-over"], "call one after the other"),
        ([*old.options()[3:], "--release"], "--release needs --table alone"),
        ([*old.options()[3:], "--take-over", "--batch", "0"], "--batch is 0"),
        ([*old.options()[3:], "--take-over", "--hold", "0s"], "--hold is zero"),
        ([*old.options()[3:], "--sent", "-1"], "--sent is -1"),
        ([*old.options()[3:], "--map", "data=nothing"], "'data' twice"),
    ],
)
def test_a_call_that_means_nothing_ends_with_2_and_a_sentence(
    command: Commands, database: str, arguments: list[str], sentence: str
) -> None:
    """Before anything is compared or changed."""
    old.home_made(database)
    ran = command("adopt", "--table", "shop.events", *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert sentence in ran.stderr


def test_a_database_without_an_outbox_is_told_of(bare_database: str, tmp_path: Path) -> None:
    """With the command that makes one."""
    old.home_made(bare_database)
    ran = Commands({"DATABASE_URL": bare_database}, tmp_path)(*old.options())
    assert ran.returncode == 2
    assert "python -m relay migrate" in ran.stderr
