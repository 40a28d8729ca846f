"""What travels: the body, its attributes, and the limits that the broker sets to both."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NAME_BYTES = 255
TOPIC_BYTES = 512
DEDUP_KEY_BYTES = 1_024
ORDERING_KEY_BYTES = 1_024
ATTRIBUTE_NAME_BYTES = 256
ATTRIBUTE_VALUE_BYTES = 1_024
VERSION_MOST = 999_999_999
# Set by the relay on every message, from the row's own columns.
RELAY_ATTRIBUTES = ("event_id", "event_type", "aggregate_type", "aggregate_id", "created_at", "sequence")
# The broker takes 100 in all.
OWN_ATTRIBUTES = 100 - len(RELAY_ATTRIBUTES)
_TOPIC = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]*", re.ASCII)
_FULL_TOPIC = re.compile(r"projects/[^/\s]+/topics/(?P<name>[^/]*)")
_SHORTEST_TOPIC, _LONGEST_TOPIC = 3, 255


class Message(NamedTuple):
    """What the broker is given. The body is the envelope as JSON, exactly as the database wrote it."""

    body: bytes
    attributes: dict[str, str]
    size_bytes: int
    ordering_key: str = ""


def attributes_fault(attributes: Mapping[str, object]) -> str | None:
    """What is wrong with an event's own attributes, in words, or None."""
    if len(attributes) > OWN_ATTRIBUTES:
        return f"has {len(attributes)} attributes, the limit is {OWN_ATTRIBUTES}"
    return next((fault for name, value in attributes.items() for fault in _faults(name, value)), None)


def topic_fault(name: str) -> str | None:
    """Why Pub/Sub would not take this name of a topic, short or in full, in words that follow it; or None."""
    short = name
    if "/" in name:
        full = _FULL_TOPIC.fullmatch(name)
        if full is None:
            return "is neither the name of a topic nor projects/<project>/topics/<topic>"
        short = full["name"]
    if not _SHORTEST_TOPIC <= len(short) <= _LONGEST_TOPIC:
        return f"has {len(short)} character(s), a topic's name has {_SHORTEST_TOPIC} to {_LONGEST_TOPIC}"
    if not _TOPIC.fullmatch(short):
        return "is no topic's name: those begin with a letter and go on with letters, digits and - _ . ~ + %"
    if short.startswith("goog"):
        return "begins with goog, which Google keeps for itself"
    return None


def _faults(name: str, value: object) -> Iterator[str]:
    shown = repr(name[:64])
    if not 1 <= (size := len(name.encode())) <= ATTRIBUTE_NAME_BYTES:
        yield f"attribute {shown} has a name of {size} bytes, the limit is 1 to {ATTRIBUTE_NAME_BYTES}"
    if name.startswith("goog"):
        yield f"attribute {shown}: names that start with goog are the broker's"
    if name in RELAY_ATTRIBUTES:
        yield f"attribute {shown} is set by the relay itself"
    if not isinstance(value, str):
        yield f"attribute {shown} is of type {type(value).__name__}, not a text"
    elif (size := len(value.encode())) > ATTRIBUTE_VALUE_BYTES:
        yield f"attribute {shown} has a value of {size} bytes, the limit is {ATTRIBUTE_VALUE_BYTES}"
    elif "\0" in name or "\0" in value:
        yield f"attribute {shown} contains a NUL character, which Postgres cannot store"
