"""`relay status`, `check` and `failed` as an operator runs them: exit codes, words, and JSON for scripts."""

import json
import re
from pathlib import Path

import psycopg
import pytest

from relay import emit
from tests.support.commands import Commands
from tests.support.outbox import event
from tests.support.roles_of_tests import ROLES


@pytest.fixture
def outbox(database: str, tmp_path: Path) -> Commands:
    """The command line on an outbox with one pending and two failed rows; it needs no broker."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number, data={"secret": "DE02"}) for number in range(3)])
        connection.execute(
            """update outbox_events set failed_at = clock_timestamp(), failure_reason = 'max_attempts',
                      attempt_count = 25, last_error_code = 'INTERNAL', last_error = 'boom'
                where aggregate_id <> '0'"""
        )
    return Commands({"DATABASE_URL": database}, tmp_path, ROLES)


def test_status_is_for_people_and_for_scripts(outbox: Commands) -> None:
    """Both say the same, and neither a payload."""
    said, told = outbox("status"), outbox("status", "--json")

    assert (said.returncode, told.returncode) == (0, 0), said.stderr + told.stderr
    assert "failed    2: 2 max_attempts" in said.stdout
    assert "2 failed with INTERNAL on domain-events" in said.stdout
    assert said.stdout.endswith("next      python -m relay failed list\n")
    found = json.loads(told.stdout)
    assert (found["due"], found["failed"]["total"], found["last_action"]) == (1, 2, None)
    assert "DE02" not in said.stdout + told.stdout


def test_a_blocked_key_is_told_of_with_what_releases_it(outbox: Commands, database: str) -> None:
    """Where one looks, in the alert, and by the command that one is sent to."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(9, ordering_key="k"), event(10, ordering_key="k"), event(11, ordering_key="k")])
        connection.execute(
            """update outbox_events set failed_at = clock_timestamp(), failure_reason = 'max_attempts',
                      last_error_code = 'INTERNAL', blocks_key = true where aggregate_id = '9'"""
        )
        (head,) = connection.execute("select id from outbox_events where aggregate_id = '9'").fetchone() or (0,)
        connection.execute("update outbox_events set created_at = now() - interval '1 hour' where id > %s", (head,))

    said, told = outbox("status"), json.loads(outbox("status", "--json").stdout)
    checked = outbox("check", "--max-failed", "3", "--max-age", "30m")

    assert "ordered   2: 0 due, 0 wait for the next attempt of their key, 2 behind a failed row" in said.stdout
    assert "blocked   1 key(s) wait behind a failed row, with 2 row(s)" in said.stdout
    assert re.search(rf"'k'  {head}  \S+  order.paid  INTERNAL \(max_attempts\) since \S+Z, 2 behind it", said.stdout)
    assert said.stdout.endswith("          python -m relay failed show ID | retry ID | discard ID --reason TEXT\n")
    assert (told["due"], told["pending"]["ordered"], told["blocked"]["keys"]) == (1, 2, 1)
    assert [(key["id"], key["behind"]) for key in told["blocked"]["shown"]] == [(head, 2)]
    assert checked.returncode == 1
    assert checked.stdout.startswith("1 key(s) wait behind a failed row, with 2 row(s), the limit is 0; ")
    assert outbox("check", "--max-failed", "3", "--max-blocked-keys", "1").returncode == 0

    assert "key 'k' waits behind it" in outbox("failed", "list").stdout
    assert "rows_behind      2" in outbox("failed", "show", str(head)).stdout
    held = outbox("failed", "show", str(head + 1)).stdout
    assert f"held_up_by       {head}\nheld_up_why      blocked\nheld_up_until    -\n" in held
    would = outbox("failed", "discard", "--ordering-key", "k", "--dry-run").stdout
    assert would == "1 row(s) would be discarded\n1 of them hold up their key, which would go on without them\n"
    done = outbox("failed", "retry", str(head)).stdout
    assert done.endswith("1 of them held up their key, which goes on with them, in order\n")


def test_a_retry_of_a_row_that_its_key_went_on_without_is_out_of_order(outbox: Commands, database: str) -> None:
    """By definition, and it is said."""
    with psycopg.connect(database) as connection:
        connection.execute("update outbox_events set ordering_key = 'k' where aggregate_id = '1'")
    done = outbox("failed", "retry", "--aggregate-id", "1")
    assert done.stdout.splitlines()[1] == (
        "1 of them have an ordering key that went on without them: "
        "if later events of the key went out, they go out of order"
    )


def test_check_is_an_exit_code_with_a_sentence(outbox: Commands) -> None:
    """0 within the limits, 1 beyond them, 2 for a limit that cannot be looked at."""
    fine = outbox("check", "--max-failed", "2", "--max-age", "1d")
    beyond = outbox("check", "--json", "--max-age", "1d")
    wrong = outbox("check", "--max-pending", "100000")

    assert (fine.returncode, fine.stdout) == (0, ""), fine.stderr
    assert beyond.returncode == 1
    verdict = json.loads(beyond.stdout)
    assert (verdict["passed"], [breach["what"] for breach in verdict["breaches"]]) == (False, ["failed"])
    assert wrong.returncode == 2
    assert "counting ends at 100,000" in wrong.stderr


def test_failed_rows_are_listed_page_by_page(outbox: Commands) -> None:
    """The end of a page says how to go on."""
    first = outbox("failed", "list", "--limit", "1")
    cursor = first.stderr.strip().removeprefix("more: --after ")
    second = json.loads(outbox("failed", "list", "--limit", "1", "--after", cursor, "--json").stdout)

    assert "order/1" in first.stdout
    assert [row["aggregate_id"] for row in second["rows"]] == ["2"]
    assert second["next"] is None
    assert "DE02" not in first.stdout + json.dumps(second)


def test_an_action_says_what_it_did_and_show_knows_it(outbox: Commands) -> None:
    """Of a dry run nothing is left."""
    dry = outbox("failed", "retry", "--code", "INTERNAL", "--dry-run")
    done = outbox("failed", "discard", "--aggregate-id", "1", "--reason", "a test order", "--by", "ana", "--json")
    row = json.loads(outbox("failed", "list", "--reason", "discarded", "--json").stdout)["rows"][0]
    shown = outbox("failed", "show", row["event_id"])

    assert dry.stdout == "2 row(s) would be retried\n", dry.stderr
    assert json.loads(done.stdout) == {
        "action": "discard",
        "dry_run": False,
        "chosen": 1,
        "acted": 1,
        "skipped": 0,
        "ordered": 0,
        "blocking": 0,
        "non_retryable": 0,
        "discarded": 0,
    }
    assert "DE02" in shown.stdout
    assert "discard by ana" in shown.stdout
    assert "a test order" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("retry",), "no row is chosen: name ids, a filter such as --code INTERNAL, or --all"),
        (("retry", "1", "--all"), "not both"),
        (("retry", "x1"), "'x1' is neither the id of a row nor an event_id"),
        (("discard", "--all"), "--reason is missing: say why you do it"),
        (("retry", "--all", "--reason", "discarded"), "write --failure-reason discarded"),
        (("retry", "--all", "--by", " "), "--by has 1 characters, or only blanks"),
        (("list", "--limit", "0"), "--limit is 0; it is from 1 to 10,000"),
        (("list", "--since", "yesterday"), "'yesterday' is neither a duration such as 2h nor an RFC 3339 time"),
        (("list", "--after", "here"), "--after is 'here'; copy it from the end of the page before"),
        ((), "the following arguments are required: ACTION"),
    ],
)
def test_a_wrong_call_is_told_and_changes_nothing(outbox: Commands, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, with what to write instead."""
    done = outbox("failed", *arguments)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_row_that_is_not_there_is_a_failure(outbox: Commands) -> None:
    """It may have been deleted since."""
    done = outbox("failed", "show", "4711")
    assert done.returncode == 1
    assert "the outbox has no row 4711; it was deleted, or never there" in done.stderr


def test_an_empty_list_says_whether_anything_failed(outbox: Commands) -> None:
    """A filter that meets nothing is no all-clear."""
    assert outbox("failed", "list", "--code", "NOBODY").stderr == "no failed row matches\n"
    assert outbox("failed", "retry", "--all").returncode == 0
    assert outbox("failed", "list").stderr == "no row has failed\n"


def test_a_retry_of_what_cannot_go_out_says_so(outbox: Commands) -> None:
    """It would fail again at once."""
    with psycopg.connect(outbox.settings["DATABASE_URL"]) as owner:
        owner.execute("update outbox_events set failure_reason = 'non_retryable' where aggregate_id = '1'")
    for options, verb in ((["--dry-run"], "would"), ([], "will")):
        done = outbox("failed", "retry", "--all", *options)
        assert done.stdout.splitlines()[1] == (
            f"1 of them are non_retryable and {verb} fail again unless they were changed: see docs/operate.md"
        )


def test_a_retry_of_what_was_given_up_says_what_may_come_of_it(outbox: Commands) -> None:
    """What it failed of may be as it was, whatever its reason says now."""
    assert outbox("failed", "discard", "--aggregate-id", "1", "--reason", "a test order").returncode == 0
    done = outbox("failed", "retry", "--failure-reason", "discarded")
    assert done.stdout.splitlines()[1].startswith("1 of them had been discarded and may fail again unless")


def test_times_are_rfc_3339_wherever_a_failed_row_is_told_of(outbox: Commands) -> None:
    """As in the message, for whoever compares them with a log line."""
    assert outbox("failed", "discard", "--aggregate-id", "1", "--reason", "a test order").returncode == 0
    assert outbox("failed", "discard", "--aggregate-id", "2", "--reason", "a test order").returncode == 0
    listed = outbox("failed", "list", "--reason", "discarded", "--limit", "1")
    row = json.loads(outbox("failed", "list", "--reason", "discarded", "--json").stdout)["rows"][0]
    shown = json.loads(outbox("failed", "show", row["event_id"], "--json").stdout)

    acted_at = json.loads(outbox("status", "--json").stdout)["last_action"]["acted_at"]
    assert outbox("status").stdout.count(acted_at) == 1
    assert listed.stderr == f"more: --after {row['failed_at']}/{row['id']}\n"
    times = [row["failed_at"], row["created_at"], shown["failed_at"], *(each["acted_at"] for each in shown["history"])]
    times.append(acted_at)
    assert [time for time in times if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time)] == []
    assert row["failed_at"] in listed.stdout
