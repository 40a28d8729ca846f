"""The events that a peer in Python has in its queue: as large as those of `benchmarks.backlog`."""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_DATA_BYTES = 400
_BULK = 1_000


class Event(NamedTuple):
    """What is to be published."""

    body: str
    attributes: dict[str, str]


def bulks(count: int) -> Iterator[list[Event]]:
    """So many events, in portions that one statement stores."""
    for first in range(1, count + 1, _BULK):
        yield [_event(sequence) for sequence in range(first, min(first + _BULK, count + 1))]


def _event(sequence: int) -> Event:
    identity = str(uuid.uuid4())
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    envelope = {
        "event_id": identity,
        "event_type": "order.paid",
        "version": 1,
        "occurred_at": created,
        "actor": None,
        "data": {"note": "x" * (_DATA_BYTES - len('{"note": ""}'))},
    }
    attributes = {
        "event_id": identity,
        "event_type": "order.paid",
        "aggregate_type": "order",
        "aggregate_id": str(sequence),
        "created_at": created,
        "sequence": str(sequence),
    }
    return Event(json.dumps(envelope), attributes)
