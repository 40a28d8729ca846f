"""The broker's limits to what a row written by hand may hold, and the size of a message.

The limits that hold at emit too are in tests/integration/test_emit.py.
"""

import json

import pytest
from google.pubsub_v1.types import PubsubMessage
from hypothesis import given
from hypothesis import strategies as st

from relay.envelope import MESSAGE_BYTES, attributes_fault, topic_fault
from relay.errors import MessageError
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


@given(
    body=st.binary(max_size=300),
    names=st.lists(TEXT.map(lambda text: text[:60]), min_size=3, max_size=3),
    own=st.dictionaries(st.sampled_from([f"é{n}" * 40 for n in range(20)]), TEXT.map(lambda text: (text * 9)[:250])),
)
def test_a_message_is_never_larger_than_it_says(body: bytes, names: list[str], own: dict[str, str]) -> None:
    """Requests are cut by these sizes, and one byte too much would be refused by the broker."""
    message = message_of(
        row(
            body=body,
            event_type=names[0],
            aggregate_type=names[1],
            aggregate_id=names[2],
            attributes=json.dumps(own) if own else None,
        )
    )
    wire = PubsubMessage.pb()(data=message.body, attributes=message.attributes)

    assert wire.ByteSize() <= message.size_bytes


def test_the_longest_names_are_counted() -> None:
    """An allowance would not cover them."""
    message = message_of(row(event_type="t" * 255, aggregate_type="é" * 127, aggregate_id="i" * 1_024))

    assert PubsubMessage.pb()(data=message.body, attributes=message.attributes).ByteSize() <= message.size_bytes


def test_a_message_over_the_limit_is_refused() -> None:
    """A row written by hand may be larger than it claims to be."""
    with pytest.raises(MessageError, match="the limit is 9500000"):
        message_of(row(body=b"x" * MESSAGE_BYTES))


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
