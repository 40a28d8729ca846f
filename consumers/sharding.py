"""Which of several processes a delivery belongs to: the same on every machine and in every version."""

import hashlib
from collections.abc import Callable
from typing import Any

from consumers.received import Received

ShardKey = Callable[[Received[Any]], str]
_POSITIVE = 0x7FFFFFFF


def of_aggregate(event: Received[Any]) -> str:
    """What belongs together unless the consumer says otherwise: the events of an aggregate, or else each for itself."""
    return event.aggregate_id or str(event.event_id)


def shard_of(key: str) -> int:
    """A number from 0 to 2^31 - 1; whoever has the remainder by the number of processes has the delivery."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4]) & _POSITIVE
