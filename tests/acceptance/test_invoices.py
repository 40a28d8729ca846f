"""The example of invoices, as `make example NAME=invoices` runs it, and with its consumers killed."""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from examples.invoices.__main__ import CONSUMER, PROVIDER, SERVICE, SETTINGS, order
from examples.invoices.invoicing import drawn
from examples.programs import equipped, served
from tests.support.commands import ROOT
from tests.support.mortal import Mortal
from tests.support.waiting import until

EARLY = 20
ORDERS = 24
MOST_AT_ONCE = 2
SHORT = {
    **SETTINGS,
    "INBOX_LEASE_MS": "1500ms",
    "INBOX_HEARTBEAT_MS": "500ms",
    "INBOX_RETRY_BASE_MS": "50ms",
    "INBOX_RETRY_MAX_MS": "200ms",
    "INBOX_RETRY_JITTER_MS": "50ms",
}
# How many invoices there are when somebody dies.
DEATHS = (2, 6, 11, 17)
MOST_LINES = 199
BLOCKED = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
WRITING = f"{BLOCKED} and query like 'insert into invoices %'"
RENDERED = "select from inbox_deliveries where event_type = 'order.placed' and state = 'processing' for update"
COMPLETING = f"{BLOCKED} and query like '%inbox_complete%'"
OPEN = """
select (select count(*) from inbox_deliveries where state in ('pending', 'processing'))
     + (select count(*) from outbox_events where published_at is null)
"""
Database = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.slow("runs an example to its end")
def test_every_order_has_its_invoice_and_its_email() -> None:
    """The example says so, and ends as a program that succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.invoices"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 of 20 orders have their invoice" in done.stdout
    assert drawn(1, "1 Main Street", 1999).decode() in done.stdout
    assert '422 {"status":"failed","code":"INVOICE_ADDRESS_MISSING"' in done.stdout
    assert "20 emails were sent" in done.stdout


@pytest.mark.slow("kills the processes of an example for seconds")
def test_one_invoice_and_one_email_an_order_whoever_is_killed(inbox_database: str, tmp_path: Path) -> None:
    """Consumers die while they render, in the middle of their transactions and while they mail; clients wait on."""
    environment = equipped(inbox_database, "invoices", **SHORT)
    with (
        served(environment, PROVIDER) as mail,
        served(environment, SERVICE) as url,
        httpx.Client(base_url=url, timeout=60) as customer,
        psycopg.connect(inbox_database, autocommit=True) as database,
        ThreadPoolExecutor(ORDERS) as customers,
    ):
        consumer = {**environment, "MAIL_PROVIDER_URL": mail}
        numbers = [order(customer, f"{number} Main Street") for number in range(1, EARLY + 1)]
        waiting = [customers.submit(_invoice, customer, number) for number in numbers]
        with (
            Mortal.running(consumer, CONSUMER, tmp_path / "one.log") as one,
            Mortal.running(consumer, CONSUMER, tmp_path / "other.log") as other,
        ):
            for rendered, victim in zip(DEATHS, cycle((one, other)), strict=False):
                until(partial(_rendered, database, rendered), f"{rendered} invoices: {one.said}{other.said}")
                victim.die()
            with psycopg.connect(inbox_database) as deliveries:
                with psycopg.connect(inbox_database) as invoices:
                    invoices.execute("lock table invoices in share mode")
                    numbers += [order(customer, f"{number} Main Street") for number in range(EARLY + 1, ORDERS + 1)]
                    waiting += [customers.submit(_invoice, customer, number) for number in numbers[EARLY:]]
                    until(lambda: _one(database, WRITING) > 0, "somebody is about to write an invoice")
                    deliveries.execute(RENDERED)
                until(lambda: _one(database, COMPLETING) > 0, "an invoice is written, and its delivery not completed")
                one.die()
                other.die()
            until(lambda: _one(database, OPEN) == 0, f"all is done: {one.said}{other.said}")

        answers = [answer.result() for answer in waiting]
        assert Counter(answer.status_code for answer in answers) == {200: ORDERS}
        assert [answer.content for answer in answers] == [drawn(n, f"{n} Main Street", 1999) for n in numbers]
        assert _one(database, "select count(*) from inbox_deliveries where state <> 'done'") == 0
        # Nothing but the transaction with `ctx.complete` keeps these from being there twice.
        rendered_events = "select event_id::text, aggregate_id from outbox_events where event_type = 'invoice.rendered'"
        announced: dict[str, str] = dict(database.execute(rendered_events).fetchall())
        assert sorted(map(int, announced.values())) == numbers
        sent = httpx.get(f"{mail}/emails").json()
        assert {key: email["subject"].rpartition(" ")[2] for key, email in sent.items()} == announced
        assert _one(database, "select count(*) from inbox_history where what = 'requeued:stale'") > 0
        assert 0 < _most_at_once(database) <= MOST_AT_ONCE


def test_the_example_is_short() -> None:
    """An example that takes longer to read than the page about it helps nobody."""
    sources = (ROOT / "examples" / "invoices").glob("*.py")
    assert sum(len(source.read_text().splitlines()) for source in sources) <= MOST_LINES


def _invoice(customer: httpx.Client, number: int) -> httpx.Response:
    """Wait for it, and once more where that was not long enough."""
    path = f"/orders/{number}/invoice?waitMs=30000"
    answer = customer.get(path)
    return customer.get(path) if answer.status_code == httpx.codes.ACCEPTED else answer


def _rendered(database: Database, least: int) -> bool:
    return _one(database, "select count(*) from invoices") >= least


def _most_at_once(database: Database) -> int:
    """Renderings of one process at the same time, by what the history says of each attempt."""
    history: dict[int, list[tuple[Any, str, str]]] = {}
    query = """
    select delivery_id, history.at, what, detail ->> 'by'
      from inbox_history as history join inbox_deliveries as delivery on delivery.id = delivery_id
     where event_type = 'order.placed' and what <> 'created' order by history.id
    """
    for delivery, *entry in database.execute(query).fetchall():
        history.setdefault(delivery, []).append((entry[0], entry[1], entry[2]))
    steps: dict[str, list[tuple[Any, int]]] = {}
    for entries in history.values():
        for (begun, what, owner), (ended, *_) in pairwise(entries):
            if what == "processing":
                steps.setdefault(owner, []).extend([(begun, 1), (ended, -1)])
    most = 0
    for each in steps.values():
        running = 0
        for _, step in sorted(each):
            running += step
            most = max(most, running)
    return most


def _one(database: Database, query: str) -> int:
    row = database.execute(query.encode()).fetchone()
    assert row
    number: int = row[0]
    return number
