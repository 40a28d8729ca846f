"""The example of stock, as `make example NAME=stock` runs it, and with its processes killed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.programs import prepared
from examples.stock.__main__ import CONSUMER, LOW, ORDERED, is_settled, sell
from examples.stock.supplier import supplier
from relay.dev.stack import Part, Stack
from tests.support.commands import ROOT
from tests.support.mortal import Mortal
from tests.support.waiting import until

SHORT = {
    "INBOX_LEASE_MS": "2s",
    "INBOX_HEARTBEAT_MS": "500ms",
    "INBOX_POLL_MS": "100ms",
    "INBOX_MAX_ATTEMPTS": "-1",
    "INBOX_RETRY_BASE_MS": "100ms",
    "INBOX_RETRY_JITTER_MS": "100ms",
}
SOURCES = ("tables.sql", "purchasing.py", "supplier.py", "__main__.py", "__init__.py")
MOST_LINES = 199
Shop = psycopg.Connection[Any]


@pytest.mark.slow("runs an example to its end")
def test_what_is_low_is_on_order() -> None:
    """The example says so, and ends as a program that succeeded."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.stock"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "28 are on order" in done.stdout


@pytest.mark.slow("kills the processes of an example for seconds")
def test_one_order_a_crossing_whoever_is_killed(tmp_path: Path) -> None:
    """Two processes die in turn while products fall, recover and fall again; what recovered in time is not ordered."""
    with Stack.start([Part.POSTGRES]) as stack, supplier() as (url, orders):
        environment = prepared(stack.database_url, "stock", SUPPLIER_URL=url, **SHORT)
        with psycopg.connect(stack.database_url, autocommit=True) as shop:
            sell(shop)
            recovered = _names(shop, "select '/' || sku || '-1' from stock where qty >= threshold")
            with (
                Mortal.running(environment, CONSUMER, tmp_path / "first.log") as first,
                Mortal.running(environment, CONSUMER, tmp_path / "second.log") as second,
            ):
                until(lambda: len(_names(shop, ORDERED)) >= 5, "the first orders are there")
                first.die()
                shop.execute("update stock set qty = qty + 20 where qty < threshold")
                shop.execute("update stock set qty = qty - 1")
                second.die()
                shop.execute("update stock set qty = qty - 25 where qty between 20 and 28")
                until(lambda: any(name.endswith("-2") for name in _names(shop, ORDERED)), "others are there", 60)
                shop.execute("update stock set qty = qty - 1 where sku ~ '[13]$'")
                first.die()
                until(lambda: is_settled(shop), f"all is settled: {first.said}", 60)
            low, ordered = _names(shop, LOW), _names(shop, ORDERED)
            states = _names(shop, "select distinct state || ' ' || outcome from inbox_deliveries")
    assert ordered == set(orders)
    assert low
    assert low <= ordered
    assert not recovered & ordered
    assert states == {"done ok", "done skipped"}


def test_the_example_is_short() -> None:
    """An example that takes longer to read than the page about it helps nobody."""
    lines = sum(len((ROOT / "examples" / "stock" / name).read_text().splitlines()) for name in SOURCES)
    assert lines <= MOST_LINES


def _names(shop: Shop, query: str) -> set[str]:
    return {name for (name,) in shop.execute(query.encode())}
