"""`consumers reconcile` as an operator has it: with a DATABASE_URL, and nothing else."""

import json
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from relay import Event, emit
from tests.support.commands import Commands
from tests.support.inbox import rows
from tests.support.waiting import until

AWAY = "postgresql://user@127.0.0.1:1/db"
SHOP = """
import asyncio, os
from datetime import datetime, timezone
from uuid import UUID
from consumers import Consumer, Missing, Received

billing = Consumer("billing", dedup="inbox")
other = Consumer("other", dedup="none")
both = [billing, other]

@billing.on("order.paid")
@other.on("order.paid")
async def book(event: Received) -> None: ...

slow = Consumer("slow", dedup="inbox")
slow.on("order.paid")(book)

@slow.reconcile
async def tell(position, page):
    start = position or 0
    if start == 30 and not os.environ.get("FAST"):
        await asyncio.sleep(600)
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    events = [
        Missing(event_id=UUID(int=n + 1), event_type="order.paid", data=n, occurred_at=moment)
        for n in range(start, start + page)
    ]
    return events, start + page if start < 40 else None

wrong = Consumer("wrong", dedup="inbox")
wrong.on("order.paid")(book)

@wrong.reconcile
async def tell_wrong(position, page):
    return [Missing(event_id="none", event_type="order.paid", data=None, occurred_at=datetime.now(timezone.utc))], None
"""


@pytest.fixture
def consumers(inbox_database: str, tmp_path: Path) -> Commands:
    """The command line, in the folder of a shop."""
    return shop_in(tmp_path, inbox_database)


def shop_in(folder: Path, url: str) -> Commands:
    """The command line in a folder that has the shop."""
    (folder / "shop.py").write_text(SHOP)
    return Commands({"DATABASE_URL": url, "INBOX_RETENTION": "off"}, folder, program="consumers")


@pytest.fixture
def outbox(inbox_database: str) -> str:
    """The same database, with three events in its outbox."""
    with psycopg.connect(inbox_database) as connection:
        for event_type in ("order.paid", "order.paid", "order.sent"):
            emit(connection, Event(event_type=event_type, aggregate_type="order", aggregate_id="1", data={}))
    return inbox_database


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The sentence of a command that did not do it."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_plan_counts_and_the_command_stores(consumers: Commands, outbox: str) -> None:
    """And says how many there were of each kind."""
    plan = consumers("reconcile", "shop:billing", "--plan")
    assert plan.stdout == "2 event(s) seen, 2 missing in the inbox, none stored: this was a plan\n", plan.stderr
    assert rows(outbox) == []

    done = consumers("reconcile", "shop:billing")
    assert (done.returncode, done.stdout) == (0, "2 event(s) seen, 2 missing in the inbox, 2 stored\n"), done.stderr
    assert len(rows(outbox)) == 2

    again = consumers("reconcile", "shop:billing", "--json")
    assert json.loads(again.stdout) == {
        "consumer": "billing",
        "from": "outbox",
        "plan": False,
        "resumed": False,
        "seen": 2,
        "missing": 0,
        "stored": 0,
        "refused": 0,
        "left_out": {},
    }


def test_one_that_is_killed_goes_on_where_it_was(consumers: Commands, inbox_database: str) -> None:
    """At any instruction: what it had stored is there with the place behind it."""
    with consumers.background("reconcile", "shop:slow", "--page", "10") as process:
        until(lambda: len(rows(inbox_database)) == 30, "three pages are stored")
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    done = consumers("reconcile", "shop:slow", "--page", "10", FAST="yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "went on from where an earlier call had ended; the counts are of both",
        "50 event(s) seen, 50 missing in the inbox, 50 stored",
    ]
    assert len(rows(inbox_database)) == 50


def test_what_cannot_be_stored_is_told_and_the_exit_code_is_1(consumers: Commands) -> None:
    """For a script to see."""
    done = consumers("reconcile", "shop:wrong")
    assert done.returncode == 1
    assert done.stderr.startswith("consumers: not stored: event none: the body is no envelope: event_id: ")
    assert done.stdout.splitlines() == [
        "1 event(s) seen, 1 missing in the inbox, 0 stored",
        "1 of them cannot be stored; each is told above",
    ]


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (["shop:other"], {}, "consumer 'other' has dedup='none', and keeps no deliveries to rebuild"),
        (["shop:both"], {}, "'shop:both' has 2 consumers, and one is reconciled at a time; name one"),
        (["shop:nobody"], {}, "the module has nothing of that name"),
        (["shop:billing", "--from", "own"], {}, "has no function of its own that tells its events"),
        (["shop:billing", "--plan", "--restart"], {}, "--restart goes without --plan"),
        (["shop:billing", "--page", "0"], {}, "'0' is no number from 1 to 5000"),
        (["shop:billing"], {"DATABASE_URL": ""}, "DATABASE_URL is not set"),
        (["shop:billing"], {"INBOX_RETENTION": "90"}, "INBOX_RETENTION is 90ms, after which duplicates"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(
    tmp_path: Path, arguments: list[str], settings: dict[str, str], words: str
) -> None:
    """With what to write instead, and exit code 2; no database is asked."""
    assert words in refused(shop_in(tmp_path, AWAY)("reconcile", *arguments, **settings), 2)


def test_a_schema_that_has_none_is_refused(consumers: Commands) -> None:
    """Neither an inbox nor an outbox; the sentence names the setting."""
    said = refused(consumers("reconcile", "shop:billing", RELAY_SCHEMA="away"), 2)
    assert "schema 'away' of this database has no outbox_events to rebuild deliveries from; name" in said
    said = refused(consumers("reconcile", "shop:billing", INBOX_SCHEMA="away"), 2)
    assert "has no schema 'away', which INBOX_SCHEMA names; correct the name there, or create" in said


def test_a_database_that_is_away_is_a_failure(tmp_path: Path) -> None:
    """A restart may help."""
    assert "Connection refused" in refused(shop_in(tmp_path, AWAY)("reconcile", "shop:billing"), 1)
