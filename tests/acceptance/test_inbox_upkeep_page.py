"""docs/inbox-upkeep.md: its examples, run the way they stand there."""

import re
from pathlib import Path

import psycopg
import pytest

from consumers.inbox import cleaning, revising
from consumers.line_table import LINES
from relay import Event, emit
from relay.upkeep import mover
from tests.support.commands import ROOT, Commands
from tests.support.inbox import rows

PAGE = (ROOT / "docs" / "inbox-upkeep.md").read_text(encoding="utf-8")
SHOP, CORRECTED = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def consumers(inbox_database: str, tmp_path: Path) -> Commands:
    """The command line, in a folder with the page's shop."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return Commands({"DATABASE_URL": inbox_database}, tmp_path, program="consumers")


def test_the_function_on_the_page_tells_what_is_missing(consumers: Commands, inbox_database: str) -> None:
    """In pages, and from the first one to the last."""
    done = consumers("reconcile", "shop:billing", "--page", "3")
    assert (done.returncode, done.stdout) == (0, "7 event(s) seen, 7 missing in the inbox, 7 stored\n"), done.stderr
    assert len(rows(inbox_database)) == 7


def test_the_commands_on_the_page_do_what_it_says(consumers: Commands, inbox_database: str) -> None:
    """From an outbox with two events."""
    with psycopg.connect(inbox_database) as connection:
        for number in range(2):
            emit(connection, Event(event_type="order.paid", aggregate_type="order", aggregate_id=str(number), data={}))
    said = []
    for line in COMMANDS.splitlines():
        words = line.partition("#")[0].split()
        assert words[:3] == ["python", "-m", "consumers"]
        done = consumers(*words[3:], "--from", "outbox")
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0].startswith("2 event(s) seen, 2 missing in the inbox, none stored")
    assert f"```\n{said[1]}```" in PAGE


def test_the_page_names_what_is_there() -> None:
    """Lines, times and the handler of the first example."""
    assert {"inbox_cleaned", "upkeep_failed", "start_warning"} <= {line.name for line in LINES}
    assert CORRECTED.strip() in SHOP
    assert (cleaning.ROUND_SECONDS, revising.DEPLOY_SECONDS) == (600, 600)
    assert (cleaning.PAGE, mover.PAUSES, revising.PAUSES) == (500, 4, 4)
