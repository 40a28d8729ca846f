"""From a row to its message, or to the reason why it can never become one; and from messages to requests."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, islice

from relay.brokers.broker import RequestLimits
from relay.envelope import Message, attributes_fault
from relay.errors import MessageError
from relay.outbox.rows import Claimed

# A message above this travels alone: what its size draws from a broker or a proxy must not meet others.
LARGE_BYTES = 1_000_000
# What failed once is sent in so many requests at most, side by side.
SUSPECT_PARTS = 64

# A row with its message.
Sendable = tuple[Claimed, Message]


def message_of(row: Claimed) -> Message:
    """Build the row's message. Raises MessageError where a row written by hand has attributes that are none.

    Its size is what the table makes of the row, which is no less than what travels.
    """
    # All at once: every event comes by here, and a name costs less than an attribute.
    row_id, event_id, event_type, aggregate_type, aggregate_id, _, body, more, size, created_at, _, key = row
    attributes = {
        "event_id": event_id,
        "event_type": event_type,
        "aggregate_type": aggregate_type,
        "aggregate_id": aggregate_id,
        "created_at": created_at,
        "sequence": str(row_id),
    }
    if more:
        attributes |= _own_attributes(more)
    return Message(body, attributes, size, key or "")


def lanes(
    rows: Iterable[Sendable], suspects: AbstractSet[int], rows_a_part: int, limits: RequestLimits
) -> Iterator[Sequence[Sequence[Sendable]]]:
    """Cut the messages of each ordering key, in their order, into requests that follow each other.

    Those that failed before are sent in small parts, large ones alone.
    """
    keys: dict[str, list[Sendable]] = defaultdict(list)
    for pair in rows:
        keys[pair[1].ordering_key].append(pair)
    for key in keys.values():
        lane: list[Sequence[Sendable]] = []
        for (large, suspected), alike in groupby(key, lambda pair: (_is_large(pair), is_suspect(pair, suspects))):
            together = list(alike)
            most = 1 if large else rows_a_part if suspected else limits.messages
            for start in range(0, len(together), most):
                lane += _within(together[start : start + most], limits)
        yield lane


def requests(
    rows: Sequence[Sendable], suspects: AbstractSet[int], rows_a_part: int, limits: RequestLimits
) -> Iterator[Sequence[Sendable]]:
    """Cut one topic's messages that have no key, in their order, into requests that the broker takes.

    Rows that failed before, or whose ids are among the suspects, come first and in small parts, some of them: whatever
    is sent after them is their control. Large messages travel alone.
    """
    suspected = [pair for pair in rows if pair[0].attempt_count or pair[0].id in suspects]
    if suspected:
        yield from islice(_cut(suspected, rows_a_part, limits), SUSPECT_PARTS)
        rows = [pair for pair in rows if not is_suspect(pair, suspects)]
    yield from _cut(rows, limits.messages, limits)


def _cut(rows: Sequence[Sendable], most: int, limits: RequestLimits) -> Iterator[Sequence[Sendable]]:
    large = [pair for pair in rows if pair[1].size_bytes > LARGE_BYTES]
    yield from ([pair] for pair in large)
    small = [pair for pair in rows if not _is_large(pair)] if large else rows
    for start in range(0, len(small), most):
        yield from _within(small[start : start + most], limits)


def _within(rows: Sequence[Sendable], limits: RequestLimits) -> Iterator[Sequence[Sendable]]:
    if len(rows) <= limits.messages and sum([message.size_bytes for _, message in rows]) <= limits.size_bytes:
        if rows:
            yield rows
        return
    request: list[Sendable] = []
    size = 0
    for row, message in rows:
        if request and (len(request) >= limits.messages or size + message.size_bytes > limits.size_bytes):
            yield request
            request, size = [], 0
        request.append((row, message))
        size += message.size_bytes
    if request:
        yield request


def is_suspect(pair: Sendable, suspects: AbstractSet[int]) -> bool:
    """Whether the row has failed before, alone or among others."""
    return bool(pair[0].attempt_count) or pair[0].id in suspects


def _is_large(pair: Sendable) -> bool:
    return pair[1].size_bytes > LARGE_BYTES


def _own_attributes(text: bytes) -> dict[str, str]:
    try:
        attributes: dict[str, str] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError("invalid_attributes", f"the attributes cannot be read: {error}") from error
    if fault := attributes_fault(attributes):
        raise MessageError("invalid_attributes", fault)
    return attributes
