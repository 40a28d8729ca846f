"""`relay emit`: events by hand, all of them or none."""

import json
from pathlib import Path
from uuid import uuid4

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


def test_where_and_when_it_goes_is_said_by_options(relay: Commands, database: str) -> None:
    """Each as the field of the event that it is named after."""
    event_id = str(uuid4())
    ordered = relay(*ONE, "--data", "null", "--topic", "orders", "--ordering-key", "k", "--event-id", event_id)
    later = relay(
        *ONE, "--data", "[1]", "--available-at", "2200-01-01T01:00:00+01:00", "--occurred-at", "2024-01-31T12:00:00Z"
    )

    assert (ordered.returncode, later.returncode) == (0, 0), ordered.stderr + later.stderr
    assert ordered.stdout.split()[0] == event_id
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "select event_id::text, topic, ordering_key, available_at = '2200-01-01 00:00:00+00',"
            " payload -> 'data', payload ->> 'occurred_at' from outbox_events order by id"
        ).fetchall()
    assert rows[0][:5] == (event_id, "orders", "k", False, None)
    assert rows[1][1:] == (None, None, True, [1], "2024-01-31T12:00:00.000000Z")


def test_a_line_for_people_says_what_became_of_the_event(relay: Commands, database: str) -> None:
    """In words."""
    del database
    first, second = (relay(*ONE, "--data", "1", "--dedup-key", "d").stdout.split(maxsplit=2) for _ in range(2))
    assert (first[2], second[2]) == ("inserted\n", "exists already\n")
    assert first[:2] == second[:2]


def test_data_and_events_come_through_a_pipe(relay: Commands, database: str) -> None:
    """Written by another program, with the last line unfinished or not."""
    data = relay(*ONE, "--data", "-", stdin='{"note": "grüße"}\n')
    events = relay("emit", "--file", "-", "--json", stdin=f"{GOOD}\r\n\n{GOOD}")
    nothing = relay("emit", "--file", "-", stdin="")

    assert (data.returncode, events.returncode) == (0, 0), data.stderr + events.stderr
    assert [json.loads(line)["inserted"] for line in events.stdout.splitlines()] == [True, True]
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "")
    assert count(database, "payload -> 'data' = '{\"note\": \"grüße\"}'") == 1
    assert count(database) == 3


def test_a_long_file_is_one_transaction(relay: Commands, database: str, tmp_path: Path) -> None:
    """However many statements it takes; its order is that of the answers and of the rows."""
    file = tmp_path / "events.jsonl"
    lines = [json.dumps({**json.loads(GOOD), "event_id": str(uuid4())}) for _ in range(2_500)]
    file.write_text("\n".join(lines))
    done = relay("emit", "--file", str(file), "--json")

    assert done.returncode == 0, done.stderr
    sent = [json.loads(line)["event_id"] for line in lines]
    assert [json.loads(line)["event_id"] for line in done.stdout.splitlines()] == sent
    with psycopg.connect(database) as connection:
        rows = connection.execute("select event_id::text, xmin::text from outbox_events order by id").fetchall()
    assert [row[0] for row in rows] == sent
    assert len({row[1] for row in rows}) == 1


def with_id(event_id: str) -> str:
    """A good line of this id, with something in it that must not be told."""
    return json.dumps({**json.loads(GOOD), "event_id": event_id, "data": SECRET})


def test_what_the_database_refuses_is_named_by_its_line(relay: Commands, database: str, tmp_path: Path) -> None:
    """An id that is taken, in the outbox or in the file, near or far; a message that is too large. No data is told."""
    file, taken = tmp_path / "events.jsonl", str(uuid4())
    assert relay(*ONE, "--data", "1", "--event-id", taken).returncode == 0
    twice = str(uuid4())
    large = json.dumps({**json.loads(GOOD), "data": SECRET * 1_000_000})
    for lines, words in (
        ([GOOD, "", with_id(taken)], f"line 3: the event_id {taken} is taken by another event of the outbox or of an"),
        ([with_id(twice), with_id(twice)], f"line 2: the event_id {twice} is taken"),
        ([with_id(twice), *[GOOD] * 1_200, with_id(twice)], f"line 1202: the event_id {twice} is taken"),
        ([large], "line 1: outbox_events: the event a.b of a 1 has a message of "),
        ([GOOD, GOOD, large, GOOD], "one of the lines 1 to 3: outbox_events: the event a.b of a 1 has a message of "),
    ):
        file.write_text("\n".join(lines))
        done = relay("emit", "--file", str(file))
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.startswith(f"relay: {words}")
        assert done.stderr.endswith("; nothing was stored\n")
        assert SECRET not in done.stderr
    one = relay(*ONE, "--data", f'"{SECRET}"', "--event-id", taken)
    assert one.returncode == 2
    assert one.stderr == (
        f"relay: the event: the event_id {taken} is taken by another event of the outbox; nothing was stored\n"
    )
    assert count(database) == 1


def test_a_database_without_an_outbox_is_a_wrong_configuration(relay: Commands, bare_database: str) -> None:
    """With the command that makes one."""
    done = relay(*ONE, "--data", "1", DATABASE_URL=bare_database)
    assert (done.returncode, done.stdout) == (2, "")
    assert "python -m relay migrate; nothing was stored" in done.stderr


def test_a_file_is_stored_in_its_order(relay: Commands, database: str, tmp_path: Path) -> None:
    """Blank lines are nothing."""
    file = tmp_path / "events.jsonl"
    file.write_text(f"{GOOD}\n\n{GOOD}\n")
    done = relay("emit", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["inserted", "inserted"]
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
        ((*ONE, "--data", "1", "--attribute", "a=1", "--attribute", "a=2"), "--attribute 'a' is given twice"),
        ((*ONE, "--data", "1", "--actor", "me"), "--actor 'me' has no :; write it like --actor user:7"),
        ((*ONE, "--data", "1", "--event-id", "7"), "the event: Event: event_id '7'"),
        (
            (*ONE, "--data", "1", "--ordering-key", "k", "--available-at", "2200-01-01T00:00:00Z"),
            "has available_at and ordering_key, which exclude each other",
        ),
        (("emit", "--file", "/"), "/ cannot be read: Is a directory"),
    ):
        done = relay(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
