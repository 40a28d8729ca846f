"""The ledger's own promises: it takes what it is given, and says so when it cannot."""

import pytest

from relay.errors import RelayError
from relay.operate.ledger import EXAMPLES, Arrival, Ledger, Row


def test_a_finding_is_counted_to_its_end_and_shown_by_its_first() -> None:
    """However many are lost, all count and a few are named, the oldest first."""
    with Ledger.temporary() as ledger:
        ledger.record_rows(row(number) for number in range(100))
        ledger.record_arrivals(arrival(number) for number in range(1, 100, 2))
        totals, findings = ledger.compare()
    assert totals["expected"] == 100
    assert findings["lost"].count == 50
    assert findings["lost"].examples == tuple(f"e{number}" for number in range(0, 2 * EXAMPLES, 2))
    assert sum(finding.count for finding in findings.values()) == 50


def test_each_key_has_its_own_order() -> None:
    """Keys that are woven into each other, each in order, show no inversion; one step back in one shows one."""
    with Ledger.temporary() as ledger:
        ledger.record_rows(row(number, "ab"[number % 2]) for number in range(8))
        ledger.record_arrivals(arrival(number, "ab"[number % 2]) for number in (1, 3, 0, 2, 5, 6, 4, 7))
        _, findings = ledger.compare()
    assert findings["inversions"].examples == ("e4",)
    assert findings["mismatched"].count == 0


def test_a_full_disk_is_told_with_the_way_out() -> None:
    """What has no room ends in a sentence, not in a wrong verdict."""
    with pytest.raises(RelayError, match=r"is full.*SQLITE_TMPDIR"):
        fill_up()


def fill_up() -> None:
    """Record more than there is room for."""
    with Ledger.temporary() as ledger:
        ledger._database.execute("pragma max_page_count = 10")
        ledger.record_arrivals(arrival(number) for number in range(10_000))


def row(number: int, key: str = "") -> Row:
    """A published row."""
    return Row(number, f"e{number}", key, b"body", here=True, state="published")


def arrival(number: int, key: str = "") -> Arrival:
    """The message of such a row."""
    return Arrival(f"m{number}", f"e{number}", str(number), key, b"body")
