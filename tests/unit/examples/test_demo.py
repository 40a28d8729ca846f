"""The demo's verdict: what it shows as wrong makes it fail."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from examples.demo.__main__ import ROLLED_BACK, TRANSACTIONS, Ending, Shipping, verdict
from examples.demo.screen import Screen
from examples.demo.shop import Shop
from relay.operate.audit import AuditReport

SOLD = TRANSACTIONS - ROLLED_BACK
NOTHING: Mapping[str, Any] = dict.fromkeys(
    [
        "lost",
        "unknown",
        "undecodable",
        "misrouted",
        "mismatched",
        "inversions",
        "redelivered",
        "pending",
        "forgotten",
        "early",
        "late",
    ],
    0,
)
SHOP = cast("Shop", SimpleNamespace(committed=SOLD, rolled_back=ROLLED_BACK))
SHIPPING = cast("Shipping", SimpleNamespace(recognised=1))
END = Ending(pending=0, failed=1, shipments=SOLD, orders_shipped_once=SOLD)
REPORT = AuditReport(
    subscription="s", topic="t", ordered=True, expected=SOLD, seen=SOLD, messages=SOLD + 1, duplicates=1, failed=1,
    discarded=0, examples={}, **NOTHING,
)  # fmt: skip


def test_all_is_well() -> None:
    """The run that the demo is about."""
    assert verdict(SHOP, SHIPPING, END, REPORT, Screen())


@pytest.mark.parametrize(
    "wrong", [{"pending": 1}, {"failed": 0}, {"shipments": SOLD + 1}, {"orders_shipped_once": SOLD - 1}]
)
def test_a_wrong_effect_fails_it(wrong: Mapping[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """One order too many or too few in the database is enough."""
    assert not verdict(SHOP, SHIPPING, replace(END, **wrong), REPORT, Screen())
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [{"lost": 1}, {"unknown": 1}, {"mismatched": 1}, {"expected": SOLD - 1}, {"duplicates": 2}, {"inversions": 1}],
)
def test_a_wrong_audit_fails_it(wrong: Mapping[str, Any]) -> None:
    """Whatever the oracle finds fails the demo, in the table or not."""
    assert not verdict(SHOP, SHIPPING, END, replace(REPORT, **wrong), Screen())


def test_an_unrecognised_duplicate_fails_it() -> None:
    """The copy has to have come, and to have been known."""
    assert not verdict(SHOP, cast("Shipping", SimpleNamespace(recognised=0)), END, REPORT, Screen())
