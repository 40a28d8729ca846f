"""The broker's limits to what a row written by hand may hold, and the size of a message.

The limits that hold at emit too are in tests/integration/test_emit.py.
"""

import pytest
from hypothesis import strategies as st

from relay.envelope import attributes_fault, topic_fault
from relay.outbox.rows import Claimed
from relay.publisher.message import message_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def row(**fields: object) -> Claimed:
    """A row as a claim reads it."""
    values: dict[str, object] = {
        "id": 9_223_372_036_854_775_807,
        "event_id": "01900000-0000-7000-8000-000000000000",
        "event_type": "order.paid",
        "aggregate_type": "order",
        "aggregate_id": "7",
        "body": b"{}",
        "created_at": "2024-01-01T00:00:00.000000Z",
    }
    return Claimed(**dict.fromkeys(Claimed._fields) | values | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"é" * 129: "x"}, "has a name of 258 bytes, the limit is 1 to 256"),
        ({"tenant": 5}, "attribute 'tenant' is of type int, not a text"),
        ({"tenant": "a\0b"}, "attribute 'tenant' contains a NUL character"),
        ({"a\0b": "x"}, "contains a NUL character"),
    ],
)
def test_what_the_broker_would_refuse_is_named(attributes: dict[str, object], words: str) -> None:
    """One attribute too large would fail a whole request; a row written by hand has passed no other check."""
    assert words in (attributes_fault(attributes) or "")


def test_a_message_is_as_large_as_the_table_says() -> None:
    """Requests are cut by these sizes. That they are never too small is the table's to keep."""
    assert message_of(row(size_bytes=1_234, body=b"x" * 500)).size_bytes == 1_234


@pytest.mark.parametrize(
    "name",
    ["abc", "a" * 255, "a-_.~+%9", "projects/acme/topics/billing", "projects/example.com:acme/topics/abc", "Goog"],
)
def test_what_pubsub_takes_is_a_topic(name: str) -> None:
    """By its last part, or in full."""
    assert topic_fault(name) is None


@pytest.mark.parametrize("name", ["", "ab", "a" * 256, "a/b", "äöü", "abc\n", "goog1", "projects//topics/abc", "a=bc"])
def test_what_pubsub_refuses_is_none(name: str) -> None:
    """Before it becomes an outage."""
    assert topic_fault(name)
