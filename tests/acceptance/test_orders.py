"""The example of orders, as `make example NAME=orders` runs it, and with its processes killed."""

import random
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from examples.orders.__main__ import BILLING, RELAY, SERVICE, order, prepared
from examples.programs import served
from relay.dev.stack import Stack
from tests.support.commands import ROOT
from tests.support.mortal import Mortal
from tests.support.waiting import until

ORDERS = 150
KILL_EVERY = 25
SHORT = {"CONSUMERS_ACK_DEADLINE": "10s", "IDEMPOTENCY_LEASE": "2s"}
SOURCES = ("service.py", "billing.py", "__main__.py", "__init__.py")
MOST_LINES = 199


@pytest.mark.slow("runs an example to its end")
def test_every_order_has_its_invoice() -> None:
    """The example says so, and ends as a program that succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 of them have their invoice" in done.stdout


@pytest.mark.slow("kills the processes of an example for seconds")
def test_one_invoice_an_order_whoever_is_killed(tmp_path: Path) -> None:
    """The relay and the consumer die again and again while orders come in; nothing is billed twice or forgotten."""
    with Stack.start() as stack:
        environment = {**prepared(stack), **SHORT}
        with (
            Mortal.running(environment, RELAY, tmp_path / "relay.log") as relay,
            Mortal.running(environment, BILLING, tmp_path / "billing.log") as billing,
            served(environment, SERVICE) as url,
            httpx.Client(base_url=url) as customer,
            psycopg.connect(stack.database_url, autocommit=True) as database,
        ):
            for number in range(ORDERS):
                order(customer, number)
                if number % KILL_EVERY == KILL_EVERY - 1:
                    random.choice([relay, billing]).die()  # noqa: S311 -- chaos, not a secret
            until(lambda: _billed(database) == ORDERS, f"all are billed: {billing.said}", 60)
            assert _one(database, "select count(*) from invoices") == ORDERS
            assert _one(database, "select count(*) from invoices join orders on orders.id = order_id "
                        "where invoices.cents = orders.cents") == ORDERS  # fmt: skip


def test_the_example_is_short() -> None:
    """An example that takes longer to read than the page about it helps nobody."""
    lines = sum(len((ROOT / "examples" / "orders" / name).read_text().splitlines()) for name in SOURCES)
    assert lines <= MOST_LINES


def _billed(database: psycopg.Connection[tuple[int]]) -> int:
    return _one(database, "select count(distinct order_id) from invoices")


def _one(database: psycopg.Connection[tuple[int]], query: str) -> int:
    row = database.execute(query.encode()).fetchone()
    assert row
    return row[0]
