"""The examples of docs/reacting.md, run the way they stand there."""

import re
from pathlib import Path

import psycopg
import pytest

from consumers import Consumer
from consumers.events import Fate, Throttled
from consumers.testing import in_memory
from tests.support.commands import ROOT
from tests.support.inbox import row
from tests.support.projects import Project

PAGE = (ROOT / "docs/reacting.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^```\w+\n(?:#|--) (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
DATABASE = """
import os
import psycopg
import pytest

@pytest.fixture
def database_url():
    with psycopg.connect(os.environ["DATABASE_URL"]) as shop:
        shop.execute("truncate stock, orders, outbox_events, inbox_deliveries")
    return os.environ["DATABASE_URL"]
"""


@pytest.fixture
def shop(inbox_database: str) -> str:
    """The database with the page's tables and trigger."""
    with psycopg.connect(inbox_database) as connection:
        connection.execute(FILES["stock.sql"].encode())
    return inbox_database


def test_its_tests_pass(shop: str, tmp_path: Path) -> None:
    """Each of them, beside the trigger and the consumer of the page."""
    project = Project(tmp_path, ROOT, {"DATABASE_URL": shop})
    project.write("purchasing.py", FILES["purchasing.py"])
    project.write("test_purchasing.py", FILES["test_purchasing.py"])
    project.write("conftest.py", DATABASE)
    said = project.run("-o", "asyncio_mode=auto")
    assert f"{FILES['test_purchasing.py'].count('async def test_')} passed" in said, said


@pytest.mark.parametrize(
    ("answer", "fate", "code"), [(429, Fate.DEFERRED, ""), (503, Fate.RETRIED, "SUPPLIER_AWAY"), (200, Fate.DONE, "")]
)
async def test_its_handler_does_what_the_page_says_of_the_supplier(
    shop: str, answer: int, fate: Fate, code: str
) -> None:
    """What is deferred or retried leaves the guard's transaction without an order."""
    page: dict[str, object] = {}
    exec(FILES["purchasing.py"], page)  # noqa: S102 -- the page's own
    purchasing, answers = page["purchasing"], page["answers"]
    assert isinstance(purchasing, Consumer)
    assert isinstance(answers, list)
    answers.append(answer)
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("insert into stock values ('screws', 9, 10)")
        async with in_memory(purchasing, database=shop) as deliveries:
            event = deliveries.publish("stock.low", {"sku": "screws", "watched": {"qty": 9}})
            settled = await deliveries.wait_for(event)
            throttled = [each for each in deliveries.events if isinstance(each, Throttled)]
        ((orders,),) = connection.execute("select count(*) from orders").fetchall()
    assert (settled.fate, settled.code) == (fate, code)
    assert orders == (fate is Fate.DONE)
    assert len(throttled) == (answer == 503)
    assert row(shop, event)["attempt_count"] == (0 if fate is Fate.DEFERRED else 1)
