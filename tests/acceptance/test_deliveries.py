"""`consumers deliveries` and `consumers failed` as an operator runs them, and every command of docs/deliveries.md."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.commands import ROOT, Commands
from tests.support.inbox import history, row, rows
from tests.support.inbox_rows import store

PAGE = (ROOT / "docs/deliveries.md").read_text(encoding="utf-8")
SNIPPETS: list[str] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
GRANTS: list[str] = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def owner(inbox_database: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody with psql."""
    with psycopg.connect(inbox_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def consumers(inbox_database: str, tmp_path: Path) -> Commands:
    """The command line on an inbox; it needs no broker and no Redis."""
    parts = conninfo_to_dict(inbox_database)
    url = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parts)
    return Commands({"DATABASE_URL": url, "USER": "ana"}, tmp_path, program="consumers")


def said(done: "subprocess.CompletedProcess[str]", code: int = 0) -> str:
    """What a command printed that ended so."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_a_failure_is_found_looked_at_and_put_back(
    consumers: Commands, inbox_database: str, owner: psycopg.Connection[Any]
) -> None:
    """From the alert to the retry, as one does it in the night; no command but `show --envelope` prints the event."""
    store(owner, "done")
    id_ = store(owner, "failed", ordering_key="k")
    event = row(inbox_database, rows(inbox_database)[-1]["event_id"])["event_id"]

    alert = said(consumers("failed", "--alert-above", "0"), 1)
    counts = [json.loads(line) for line in said(consumers("deliveries", "count", "--json")).splitlines()]
    shown = said(consumers("deliveries", "show", str(event)))
    with_envelope = json.loads(said(consumers("deliveries", "show", str(id_), "--envelope", "--json")))
    dry = said(consumers("deliveries", "retry", "--code", "GONE", "--dry-run"))
    done = said(consumers("deliveries", "retry", "--code", "GONE", "--reason", "it is back"))

    assert alert.startswith(
        "1 delivery failed, more than 0; look at one with: python -m consumers deliveries show ID\n"
    )
    assert re.search(
        rf"^{id_} +{event}  billing +order.paid +failed +\d+s +3 +- +GONE +it is gone$", alert, re.MULTILINE
    )
    assert {"consumer": "billing", "event_type": "order.paid", "state": "failed", "count": 1} in counts
    assert re.search(r"^state +failed$", shown, re.MULTILINE)
    assert "DE02" not in alert + shown
    assert with_envelope["envelope"] == {"data": {"iban": "DE02"}}
    assert [entry["what"] for entry in with_envelope["history"]] == ["created"]
    assert dry.startswith("1 delivery would be retried\n")
    assert done.splitlines()[0] == "1 delivery retried"
    assert "1 of them have an ordering key that went on without them" in done
    assert re.search(
        r"^history +\S+Z  retried +by=ana  was=failed  code=GONE  role=\w+  reason=it is back  ",
        said(consumers("deliveries", "show", str(id_))),
        re.MULTILINE,
    )
    assert history(inbox_database, event) == ["created", "retried"]
    assert said(consumers("failed", "--alert-above", "0")) == ""


def test_a_list_goes_on_where_its_page_ended(consumers: Commands, owner: psycopg.Connection[Any]) -> None:
    """The newest first, or the oldest; what it says of an end that shows nothing."""
    ids = [store(owner) for _ in range(3)]
    first = consumers("deliveries", "list", "--limit", "2", "--json")
    cursor = first.stderr.strip().removeprefix("more: --after ")
    last = consumers("deliveries", "list", "--limit", "2", "--json", "--after", cursor)
    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == [ids[2], ids[1]]
    assert [json.loads(line)["id"] for line in last.stdout.splitlines()] == [ids[0]]
    assert last.stderr == ""
    oldest = said(consumers("deliveries", "list", "--oldest", "--limit", "1"))
    assert oldest.splitlines()[1].split()[0] == str(ids[0])
    assert consumers("deliveries", "list", "--code", "NOBODY").stderr == "no delivery matches\n"
    assert consumers("failed").stderr == "no delivery matches\n"
    mistyped = consumers("deliveries", "list", "--consumer", "biling")
    assert mistyped.stderr == "the inbox has nothing of consumer 'biling'; it has of: billing\n"


def test_what_is_processed_is_told_of_and_left(
    consumers: Commands, inbox_database: str, owner: psycopg.Connection[Any]
) -> None:
    """Exit 1 where it was named; beside others it is a line."""
    running, failed = store(owner, "processing"), store(owner, "failed")
    named = said(consumers("deliveries", "retry", str(running), str(failed)), 1)
    assert named.splitlines()[0] == "1 delivery retried"
    assert named.splitlines()[1].startswith(f"1 left alone ({running}): being processed now: ")
    found = said(consumers("deliveries", "discard", "--state", "processing", "--reason", "x", "--json"))
    assert json.loads(found)["left"] == {"processing": {"count": 1, "ids": [running]}}
    assert [each["state"] for each in rows(inbox_database)] == ["processing", "pending"]


def test_many_are_acted_on_only_where_that_was_said(
    consumers: Commands, inbox_database: str, owner: psycopg.Connection[Any]
) -> None:
    """Nothing is changed before."""
    with owner.transaction():
        for _ in range(1_001):
            store(owner, "failed")
    refused = consumers("deliveries", "retry", "--all-failed")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "these are more than 1,000 deliveries, and none was changed: look at what it would be" in refused.stderr
    assert {each["state"] for each in rows(inbox_database)} == {"failed"}
    assert said(consumers("deliveries", "retry", "--all-failed", "--yes")).startswith("1,001 deliveries retried\n")


def test_counts_alert_by_their_exit_code(consumers: Commands, owner: psycopg.Connection[Any]) -> None:
    """Nothing is printed within the limit; what was discarded is no failure."""
    for outcome in ("dead", "discarded"):
        store(owner, "failed", outcome=outcome)
    fine = consumers("deliveries", "count", "--state", "failed", "--alert-above", "1")
    assert (said(fine), fine.stderr) == ("", "")
    beyond = said(consumers("deliveries", "count", "--state", "failed", "--alert-above", "0", "--by", "code"), 1)
    assert beyond.splitlines()[:2] == ["CODE  COUNT", "GONE  1"]
    assert beyond.splitlines()[2].startswith("1 delivery, more than 0; ")


def test_the_users_hook_is_asked_about_what_is_shown(
    consumers: Commands, owner: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """In lists and in `show`; one that fails leaves no text, and is told of."""
    id_ = store(owner, "failed", error="iban DE02 is closed")
    (tmp_path / "hooks.py").write_text(
        "def iban(line):\n"
        "    return {name: value.replace('DE02', '…') if isinstance(value, str) else value\n"
        "            for name, value in line.items()}\n"
    )
    commands = (["deliveries", "list"], ["failed", "--json"], ["deliveries", "show", str(id_), "--envelope"])
    settings = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "CONSUMERS_LOG_REDACT": "hooks:iban"}
    for words in commands:
        done = consumers(*words, **settings)
        assert "DE02" not in said(done) + done.stderr
        assert "is closed" in done.stdout
    failing = consumers("deliveries", "show", str(id_), "--envelope", CONSUMERS_LOG_REDACT="builtins:int")
    assert "DE02" not in said(failing)
    assert "the hook of CONSUMERS_LOG_REDACT failed (TypeError): texts are left out" in failing.stderr


def test_a_database_that_is_away_or_has_no_inbox_is_told(consumers: Commands) -> None:
    """Exit 2 for what has to be changed, 1 for what may come back."""
    missing = consumers("failed", INBOX_SCHEMA="nowhere")
    assert missing.returncode == 2
    assert (
        "has no schema 'nowhere', which INBOX_SCHEMA names; correct the name there, or create the schema"
        in missing.stderr
    )
    away = consumers("deliveries", "list", DATABASE_URL="postgresql://u:hunter2@127.0.0.1:1/none")
    assert away.returncode == 1
    assert "hunter2" not in away.stderr
    unset = consumers("deliveries", "count", DATABASE_URL="")
    assert (unset.returncode, "DATABASE_URL is not set" in unset.stderr) == (2, True)
    gone = consumers("deliveries", "show", "4711")
    assert (gone.returncode, "the inbox has no delivery 4711; it was deleted, or never there" in gone.stderr) == (
        1,
        True,
    )


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda text: text.split(" ", 4)[3].strip())
def test_every_command_of_the_page_works(
    consumers: Commands, inbox_database: str, owner: psycopg.Connection[Any], snippet: str
) -> None:
    """One after the other, on an inbox that has what the page is about."""
    for _ in range(6):
        store(owner, "failed")
    for state in ("pending", "processing", "sent", "done"):
        store(owner, state, event_type="test.paid")
    for line in snippet.splitlines():
        words = shlex.split(line, comments=True)
        assert words[:3] == ["python", "-m", "consumers"]
        done = consumers(*words[3:])
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert len(rows(inbox_database)) == 10


def test_the_page_has_what_is_run_here() -> None:
    """A snippet that nobody runs is a snippet that is wrong one day."""
    assert len(SNIPPETS) == 4
    assert len(GRANTS) == 1
    (cron,) = re.findall(r"^    \*/5 .* -m consumers (.*)$", PAGE, re.MULTILINE)
    assert cron == "failed --alert-above 0"


def test_the_rights_of_the_page_are_enough_to_look(consumers: Commands, owner: psycopg.Connection[Any]) -> None:
    """And not to act."""
    id_ = str(store(owner, "failed"))
    role = f"viewers_{owner.info.dbname}"
    owner.execute(f"create role {role} login password 'p'".encode())
    try:
        owner.execute(GRANTS[0].replace("shop_viewers", role).encode())
        parts = {**conninfo_to_dict(consumers.settings["DATABASE_URL"]), "user": role, "password": "p"}
        url = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parts)
        for words in (["failed"], ["deliveries", "count"], ["deliveries", "show", id_, "--envelope"]):
            assert said(consumers(*words, DATABASE_URL=url))
        refused = consumers("deliveries", "retry", id_, DATABASE_URL=url)
        assert refused.returncode == 2
        assert "the role of DATABASE_URL may not do this: permission denied for table inbox_" in refused.stderr
    finally:
        owner.execute(f"drop owned by {role}; drop role {role}".encode())
