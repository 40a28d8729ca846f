"""docs/without-a-broker.md, run the way it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.commands import ROOT, Commands, terminate
from tests.support.waiting import until

PAGE = (ROOT / "docs" / "without-a-broker.md").read_text()
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = [line.partition("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader has put the programs."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_event_is_booked_without_a_broker(bare_database: str, folder: Path) -> None:
    """Every command of the page, in its order; nothing but DATABASE_URL is set."""
    _, export, migrate, shop, run, listing, remove = LINES
    assert export == "export DATABASE_URL=postgresql://…"
    relay = Commands({"DATABASE_URL": bare_database}, folder)
    consumers = Commands({"DATABASE_URL": bare_database}, folder, program="consumers")
    assert migrate == "python -m relay migrate && python -m consumers migrate"
    for done in (relay("migrate"), consumers("migrate")):
        assert done.returncode == 0, done.stderr
    environment = {**os.environ, "DATABASE_URL": bare_database, "PYTHONPATH": str(ROOT)}
    assert shop == "python shop.py"
    subprocess.run([sys.executable, "shop.py"], cwd=folder, env=environment, check=True, timeout=60)

    assert run == "python -m consumers run billing:billing"
    with consumers.background("run", "billing:billing") as process:
        until(lambda: _bookings(bare_database) == [("42", 900)], "the event is booked")
        until(lambda: _states(bare_database) == [("done", "ok")], "its delivery is over")
        code, log = terminate(process)
    assert code == 0
    started = next(line for line in map(json.loads, log.splitlines()) if line["event"] == "consumer_started")
    assert (started["subscription"], started["dead_letter_topic"]) == ("outbox", "")

    assert listing == "python -m consumers subscribers list"
    listed = consumers("subscribers", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    heading, row = listed.stdout.splitlines()
    assert heading.split() == ["CONSUMER", "WAITING", "SINCE", "EVENT", "TYPES"]
    assert re.fullmatch(r"billing +0 +\S+Z +order\.paid", row)
    (said,) = map(json.loads, consumers("subscribers", "list", "--json").stdout.splitlines())
    assert (said["consumer"], said["patterns"], said["waiting"]) == ("billing", ["order.paid"], 0)

    assert remove == "python -m consumers subscribers remove billing"
    removed = consumers("subscribers", "remove", "billing")
    assert (removed.returncode, removed.stdout) == (0, "billing: removed\n")
    assert "warning: events from here on are not stored for billing" in removed.stderr
    again = consumers("subscribers", "remove", "billing")
    assert (again.returncode, again.stderr) == (1, "consumers: 'billing' is no subscriber; there is none\n")
    assert consumers("subscribers", "list").stderr == "no consumer receives from this outbox\n"


def test_what_the_commands_need_is_said(bare_database: str, tmp_path: Path) -> None:
    """A database, and an inbox in it."""
    consumers = Commands({}, tmp_path, program="consumers")
    unset = consumers("subscribers", "list")
    assert (unset.returncode, unset.stderr.partition(";")[0]) == (2, "consumers: DATABASE_URL is not set")
    missing = consumers("subscribers", "list", DATABASE_URL=bare_database)
    assert missing.returncode == 2
    assert "python -m consumers migrate" in missing.stderr


def _bookings(url: str) -> list[tuple[str, int]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select order_id, cents from bookings").fetchall()


def _states(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select state, outcome from inbox_deliveries").fetchall()
