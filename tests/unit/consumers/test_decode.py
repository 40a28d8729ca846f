"""From a message to the event in it, or the reason why there is none."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.decode import decode, moment
from consumers.delivery import Delivery
from consumers.received import Received, Undecodable

EVENT = UUID("0190c6f0-0000-7000-8000-000000000001")
ENVELOPE = {
    "event_id": str(EVENT),
    "event_type": "order.paid",
    "version": 2,
    "occurred_at": "2026-01-01T12:00:00+01:00",
    "actor": {"type": "user", "id": "u-1", "tenant": "t"},
    "data": {"cents": 700},
}


JSON = st.recursive(
    st.none() | st.text() | st.integers(), lambda it: st.lists(it) | st.dictionaries(st.text(), it), max_leaves=5
)


def delivered(envelope: Any, **attributes: str) -> Delivery:
    body = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    return Delivery(body=body, attributes=attributes, message_id="m-1", ordering_key="o-1")


def test_an_envelope_is_an_event_and_the_attributes_add_what_the_relay_knows() -> None:
    attributes = {
        "event_id": "another",
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "sequence": "42",
        "created_at": "2026-01-01T11:00:01Z",
        "own": "x",
    }
    event = decode(delivered(ENVELOPE, **attributes))
    assert isinstance(event, Received)
    assert (event.event_id, event.event_type, event.version, event.data) == (EVENT, "order.paid", 2, {"cents": 700})
    assert event.occurred_at == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert event.actor == {"type": "user", "id": "u-1", "tenant": "t"}
    assert (event.aggregate_type, event.aggregate_id, event.sequence) == ("order", "o-1", 42)
    assert event.created_at == datetime(2026, 1, 1, 11, 0, 1, tzinfo=UTC)
    assert (event.message_id, event.ordering_key, event.attributes) == ("m-1", "o-1", attributes)


def test_a_message_that_did_not_come_from_a_relay_needs_its_envelope_alone() -> None:
    event = decode(delivered({**ENVELOPE, "actor": None}))
    assert isinstance(event, Received)
    assert (event.sequence, event.created_at, event.aggregate_type, event.actor) == (None, None, "", None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"event_id": "x"}, "event_id: "),
        ({"event_id": str(UUID(int=0))}, "nil UUID"),
        ({"event_type": ""}, "event_type: "),
        ({"version": 0}, "version: "),
        ({"version": 10**12}, "version: "),
        ({"occurred_at": "2026-01-01T12:00:00"}, "occurred_at: "),
        ({"actor": "me"}, "actor: "),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], words: str) -> None:
    found = decode(delivered({**ENVELOPE, **change}))
    assert isinstance(found, Undecodable)
    assert found.code == "UNDECODABLE"
    assert found.reason.startswith("the body is no envelope: ")
    assert words in found.reason


@pytest.mark.parametrize("name", sorted(ENVELOPE))
def test_each_field_is_needed(name: str) -> None:
    found = decode(delivered({field: value for field, value in ENVELOPE.items() if field != name}))
    assert isinstance(found, Undecodable)
    assert f"{name}: Field required" in found.reason


def test_the_reason_has_no_value_of_the_message() -> None:
    found = decode(delivered({**ENVELOPE, "occurred_at": "the-secret", "actor": "the-secret", "version": "the-secret"}))
    assert isinstance(found, Undecodable)
    assert "the-secret" not in found.reason


def test_what_is_no_event_is_still_known_by_its_attributes() -> None:
    found = decode(delivered(b"", event_id="e", event_type="order.paid", aggregate_id="o-1", created_at="2026-01-01Z"))
    assert isinstance(found, Undecodable)
    assert (found.event_id, found.event_type, found.aggregate_id) == ("e", "order.paid", "o-1")
    assert (found.message_id, found.ordering_key, found.created_at) == ("m-1", "o-1", None)


@pytest.mark.parametrize("text", ["-1", "1.5", "", "٤٢", "x", "9" * 5_000])
def test_a_sequence_that_is_none_is_left_out(text: str) -> None:
    event = decode(delivered(ENVELOPE, sequence=text))
    assert isinstance(event, Received)
    assert event.sequence is None


@pytest.mark.parametrize("text", [None, "", "soon", "2026-01-01T12:00:00", "2026-13-01T00:00:00Z"])
def test_a_moment_without_its_zone_is_none(text: str | None) -> None:
    assert moment(text) is None


@given(
    st.binary(max_size=200) | JSON.map(lambda it: json.dumps(it).encode()),
    st.dictionaries(st.sampled_from(["event_id", "event_type", "created_at", "sequence"]), st.text(max_size=40)),
)
def test_no_message_whatever_is_in_it_raises(body: bytes, attributes: dict[str, str]) -> None:
    assert isinstance(decode(Delivery(body=body, attributes=attributes)), Received | Undecodable)


@given(st.dictionaries(st.sampled_from(sorted(ENVELOPE)), st.none() | st.integers() | st.text() | st.floats()))
def test_no_envelope_whatever_is_in_its_fields_raises(change: dict[str, Any]) -> None:
    assert isinstance(decode(delivered({**ENVELOPE, **change})), Received | Undecodable)


def test_a_body_that_is_nested_without_end_is_undecodable() -> None:
    body = json.dumps(ENVELOPE).encode().replace(b'{"cents": 700}', b"[" * 100_000 + b"]" * 100_000)
    assert isinstance(decode(delivered(body)), Undecodable)
