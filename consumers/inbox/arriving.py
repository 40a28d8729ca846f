"""From an event to what is stored of it, wherever it comes from."""

import json
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from consumers.delivery import Delivery
from consumers.inbox.rows import Arrival
from consumers.received import Received
from consumers.sharding import ShardKey, shard_of
from relay.postgres.statements import numbers, texts


def arrival_of(delivery: Delivery, event: Received[Any], shard_key: ShardKey) -> Arrival:
    """What is stored of an event that was decoded."""
    return Arrival(
        event_id=event.event_id,
        event_type=event.event_type,
        version=event.version,
        sequence=event.sequence or 0,
        ordering_key=event.ordering_key,
        shard=shard_of(shard_key(event)),
        message_id=event.message_id,
        body=delivery.body,
        attributes=delivery.attributes,
    )


def said_of(arrivals: Iterable[Arrival], consumer: str) -> dict[str, object]:
    """What `receive.sql` is told: each event once, in the order in which no two such statements deadlock."""
    by_id = sorted({each.event_id: each for each in reversed(list(arrivals))}.values(), key=attrgetter("event_id.int"))
    return {
        "consumer": consumer,
        "event_ids": texts([str(each.event_id) for each in by_id]),
        "event_types": texts([each.event_type for each in by_id]),
        "event_versions": numbers(each.version for each in by_id),
        "sequences": numbers(each.sequence for each in by_id),
        "ordering_keys": texts([each.ordering_key for each in by_id]),
        "shards": numbers(each.shard for each in by_id),
        "message_ids": texts([each.message_id for each in by_id]),
        "envelopes": f"[{','.join([each.body.decode() for each in by_id])}]",
        "attributes": json.dumps([each.attributes for each in by_id]),
    }
