"""`relay emit`: events by hand, all of them or none."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.support.commands import Commands
from tests.support.outbox import count

ONE = ("emit", "order.paid", "--aggregate-type", "order", "--aggregate-id", "42")
GOOD = json.dumps({"event_type": "a.b", "aggregate_type": "a", "aggregate_id": "1", "data": {"n": 1}})
SECRET = "hunter2secret"  # noqa: S105 -- what must not appear


def test_one_event_is_stored_with_all_that_was_said(relay: Commands, database: str) -> None:
    """And told by its id; the second time its dedup key is taken."""
    further = ("--actor", "user:7", "--attribute", "tenant=acme", "--version", "2", "--dedup-key", "k", "--json")
    first, second = (relay(*ONE, "--data", '{"amount": 1}', *further) for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    said = json.loads(first.stdout)
    assert json.loads(second.stdout) == {**said, "inserted": False}
    with psycopg.connect(database) as connection:
        row = connection.execute("select event_id::text, payload, attributes from outbox_events").fetchone()
    assert row
    assert (row[0], row[2]) == (said["event_id"], {"tenant": "acme"})
    assert (row[1]["version"], row[1]["actor"], row[1]["data"]) == (2, {"type": "user", "id": "7"}, {"amount": 1})


def test_a_file_is_stored_in_its_order(relay: Commands, database: str, tmp_path: Path) -> None:
    """Blank lines are nothing."""
    file = tmp_path / "events.jsonl"
    file.write_text(f"{GOOD}\n\n{GOOD}\n")
    done = relay("emit", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["True", "True"]
    assert count(database) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f'{{"data": "{SECRET}"', "line 2 is not JSON"),
        (f'["{SECRET}"]', "line 2 is a JSON list, not an object"),
        (f'{{"event_type": "a", "data": "{SECRET}"}}', "line 2: Event: has no aggregate_type"),
        (GOOD.replace("1}", f'"{SECRET}", "x": "\\u0000"}}'), "line 2 (a.b): the data contains a NUL"),
        (GOOD.replace("1}", f'"{SECRET}", "x": NaN}}'), "line 2 (a.b): the data is not JSON"),
    ],
)
def test_one_wrong_line_stores_nothing(relay: Commands, database: str, tmp_path: Path, line: str, words: str) -> None:
    """It is named by its number, without its data."""
    file = tmp_path / "events.jsonl"
    file.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    done = relay("emit", "--file", str(file))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert words in done.stderr
    assert "nothing was stored" in done.stderr
    assert SECRET not in done.stderr
    assert count(database) == 0


def test_a_wrong_call_says_what_is_missing(relay: Commands) -> None:
    """Exit 2."""
    for arguments, words in (
        (ONE, "takes an event type and --data"),
        ((*ONE, "--file", "x"), "--file has whole events"),
        (("emit", "--file", "nowhere"), "nowhere cannot be read: No such file"),
        ((*ONE, "--data", "{"), "--data is not JSON"),
        ((*ONE, "--data", "1", "--attribute", "tenant"), "--attribute 'tenant' has no ="),
    ):
        done = relay(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
