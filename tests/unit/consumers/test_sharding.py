"""Which of several processes a delivery belongs to."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consumers import Received
from consumers.sharding import of_aggregate, shard_of

EVENT_ID = UUID("0192f7a0-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("", 1_411_222_745),
        ("o-1", 730_755_683),
        ("tenant-a", 1_360_314_002),
        ("ä", 68_794_140),
        (str(EVENT_ID), 1_568_500_908),
    ],
)
def test_the_hash_is_the_same_on_every_machine_and_in_every_version(key: str, number: int) -> None:
    """It is stored with deliveries, and other releases divide by it: these numbers never change."""
    assert shard_of(key) == number


def test_keys_are_spread_over_processes() -> None:
    """A thousand over four, none of which has a third of them."""
    of = [shard_of(f"order-{number}") % 4 for number in range(1_000)]
    assert all(200 < of.count(shard) < 300 for shard in range(4))


@pytest.mark.parametrize(("aggregate_id", "key"), [("o-1", "o-1"), ("", str(EVENT_ID))])
def test_what_belongs_to_an_aggregate_stays_together(aggregate_id: str, key: str) -> None:
    """An event without one stands for itself."""
    event: Received[Any] = Received(
        event_id=EVENT_ID,
        event_type="order.paid",
        version=1,
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        data=None,
        aggregate_id=aggregate_id,
        attributes={},
    )
    assert of_aggregate(event) == key
