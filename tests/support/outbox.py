"""Events to emit, and what became of them."""

from typing import Any

from relay import Event
from tests.support.looking import asked


def event(number: int = 0, **fields: Any) -> Event:
    """An event like those of a shop."""
    return Event(
        **{
            "event_type": "order.paid",
            "aggregate_type": "order",
            "aggregate_id": str(number),
            "data": {"number": number, "note": "x" * 200},
            **fields,
        }
    )


def count(url: str, condition: str = "true") -> int:
    """How many rows of the outbox meet a condition."""
    ((found,),) = asked(url, f"select count(*) from outbox_events where {condition}".encode())  # noqa: S608 -- a test's own words
    return int(found)


PUBLISHED = "published_at is not null"
PENDING = "published_at is null and failed_at is null"
FAILED = "failed_at is not null"
