"""Where an event is another than a test has said, and what a failed assertion says of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from unittest.mock import ANY
from uuid import UUID

import pytest
from pydantic import BaseModel

from relay import Actor
from relay.testing import EmittedEvent, State
from relay.testing.expected import MISSING, Difference, Expected, Fields
from relay.testing.words import not_found, unwanted

EVENT_ID = UUID("018f2f6e-0000-7000-8000-000000000001")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def stored(sequence: int = 1, **fields: Any) -> EmittedEvent:
    """An event as the outbox has it."""
    values: dict[str, Any] = {
        "sequence": sequence,
        "event_id": EVENT_ID,
        "event_type": "order.paid",
        "version": 1,
        "occurred_at": NOON,
        "actor": {"type": "user", "id": "7", "role": "admin"},
        "data": {"amount": 1999, "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}], "paid": True},
        "aggregate_type": "order",
        "aggregate_id": "42",
        "topic": None,
        "ordering_key": "customer-1",
        "dedup_key": None,
        "attributes": {"tenant": "acme", "traceparent": "00-1-2-01"},
        "created_at": NOON,
        "available_at": None,
        "state": State.PENDING,
        "message_id": None,
        "published_at": None,
        "failed_at": None,
        "failure_reason": None,
        "attempt_count": 0,
        "error_code": None,
        "error": None,
    }
    return EmittedEvent(**{**values, **fields})


def differences(event: EmittedEvent, **fields: Any) -> list[Difference]:
    """Where an event is not as these fields say."""
    return Expected("order.paid", Fields(**fields)).differences(event)  # type: ignore[typeddict-item]


class Colour(Enum):
    """A choice."""

    RED = "red"


class Paid(BaseModel):
    """A model of data."""

    amount: Decimal
    on: date


@dataclass
class Parcel:
    """Data as well."""

    colour: Colour
    weights: tuple[int, ...]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"aggregate_type": "order", "aggregate_id": "42"},
        {"event_id": EVENT_ID},
        {"event_id": str(EVENT_ID)},
        {"version": 1, "topic": None, "dedup_key": None, "ordering_key": "customer-1"},
        {"state": State.PENDING},
        {"state": "pending"},
        {"actor": Actor(type="user", id="7")},
        {"actor": {"id": "7"}},
        {"attributes": {"tenant": "acme"}},
        {"attributes": {}},
        {"data_contains": {}},
        {"data_contains": {"amount": 1999}},
        {"data_contains": {"lines": [{"sku": "a"}, {"count": 2}]}},
        {"data_contains": {"amount": pytest.approx(1999.4, abs=1), "paid": ANY}},
        {"data": {"amount": ANY, "lines": ANY, "paid": True}},
        {"data": ANY},
    ],
)
def test_what_is_left_out_may_be_anything(fields: dict[str, Any]) -> None:
    """Attributes, actor and data_contains name a part; matchers say for themselves what they equal."""
    assert differences(stored(), **fields) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"aggregate_id": "43"}, Difference("aggregate_id", "42", "43")),
        ({"aggregate_id": 42}, Difference("aggregate_id", "42", 42)),
        ({"ordering_key": None}, Difference("ordering_key", "customer-1", None)),
        ({"topic": "orders"}, Difference("topic", None, "orders")),
        ({"actor": None}, Difference("actor", {"type": "user", "id": "7", "role": "admin"}, None)),
        ({"actor": {"id": "8"}}, Difference("actor.id", "7", "8")),
        ({"attributes": {"region": "eu"}}, Difference("attributes.region", MISSING, "eu")),
        ({"data_contains": {"amount": 2000}}, Difference("data.amount", 1999, 2000)),
        ({"data_contains": {"amount": {}}}, Difference("data.amount", 1999, {})),
        ({"data_contains": {"paid": 1}}, Difference("data.paid", found=True, wanted=1)),
        ({"data_contains": {"amount": True}}, Difference("data.amount", 1999, wanted=True)),
        ({"data_contains": {"nothing": ANY}}, Difference("data.nothing", MISSING, ANY)),
        ({"data_contains": {"lines": [ANY, {"sku": "c"}]}}, Difference("data.lines[1].sku", "b", "c")),
        ({"data": None}, Difference("data", stored().data, None)),
    ],
)
def test_a_difference_is_named_by_its_place(fields: dict[str, Any], expected: Difference) -> None:
    """The whole way into the data; and JSON's true is not 1."""
    assert differences(stored(), **fields) == [expected]


def test_data_is_all_of_it() -> None:
    """What is there beside it is a difference, as is a list of another length."""
    found = differences(stored(data={"a": 1, "b": [1, 2]}), data={"b": [1], "c": 3})
    assert found == [
        Difference("data.b", [1, 2], [1]),
        Difference("data.c", MISSING, 3),
        Difference("data.a", 1, MISSING),
    ]


@pytest.mark.parametrize(
    ("stored_data", "data"),
    [
        ({"amount": "1.10", "on": "2026-01-02"}, Paid(amount=Decimal("1.10"), on=date(2026, 1, 2))),
        ({"colour": "red", "weights": [1, 2]}, Parcel(Colour.RED, (1, 2))),
        ({"at": "2026-01-02T12:00:00Z", "id": str(EVENT_ID)}, {"at": NOON, "id": EVENT_ID}),
        ({"1": "one"}, {1: "one"}),
        ([1, None, 2.5], (1, None, 2.5)),
        (1, 1.0),
    ],
)
def test_data_is_compared_as_emit_writes_it(stored_data: Any, data: Any) -> None:
    """A test says it in the words of the service."""
    assert differences(stored(data=stored_data), data=data) == []


def test_another_type_is_a_difference() -> None:
    """The first that is told."""
    found = Expected("order.lost", Fields(version=2)).differences(stored())
    assert found == [Difference("event_type", "order.paid", "order.lost"), Difference("version", 1, 2)]


@pytest.mark.parametrize(
    ("event_type", "fields", "words"),
    [
        (7, {}, "event_type is of type int, not a text"),
        (
            "a",
            {"agregate_id": "1", "typ": 2},
            "an event has no field agregate_id, typ; what can be said of one: event_id",
        ),
        ("a", {"data": 1, "data_contains": {}}, "give one of them"),
        ("a", {"data_contains": [1]}, "data_contains= is of type list, not a mapping"),
        ("a", {"attributes": None}, "attributes= is of type NoneType, not a mapping"),
    ],
)
def test_what_makes_no_sense_is_refused(event_type: Any, fields: Mapping[str, Any], words: str) -> None:
    """A misspelt field would otherwise be one that nobody looks at."""
    with pytest.raises(TypeError, match=words):
        Expected(event_type, Fields(**fields))  # type: ignore[typeddict-item]


def test_the_nearest_event_is_shown_with_what_differs() -> None:
    """Of the same type, and in the fewest places."""
    events = [
        stored(1, aggregate_id="41", data={"amount": 7}),
        stored(2, state=State.PUBLISHED, data={"amount": 8}),
        stored(3, event_type="order.lost", aggregate_id="43", ordering_key=None, data=None),
    ]
    expected = Expected("order.paid", Fields(aggregate_id="43", data_contains={"amount": 8}))
    assert not_found(expected, None, [], events, within=False).splitlines() == [
        'order.paid with aggregate_id="43", data_contains={"amount": 8} was not emitted',
        "",
        "emitted:",
        '  1  order.paid  order 41 key customer-1  pending  {"amount": 7}',
        '  2  order.paid  order 42 key customer-1  published  {"amount": 8}',
        "  3  order.lost  order 43  pending  null",
        "",
        "the nearest is 2, of which",
        '  aggregate_id is "42", not "43"',
    ]


def test_a_number_of_times_is_told_in_both() -> None:
    """How often it was, and how often it should have been."""
    expected = Expected("order.paid", Fields())
    assert not_found(expected, 1, [stored(), stored(2)], [stored(), stored(2)], within=False).startswith(
        "order.paid was emitted 2 times, not once\n\nemitted:\n  1  order.paid"
    )
    assert not_found(expected, 2, [], [], within=False).startswith("order.paid was emitted 0 times, not 2 times")


def test_an_empty_outbox_says_what_may_be_the_reason() -> None:
    """Most often, nobody has committed."""
    expected = Expected("order.paid", Fields())
    assert not_found(expected, None, [], [], within=False).endswith(
        "the outbox is empty: a transaction that is not committed is seen with connection= alone"
    )
    assert not_found(expected, None, [], [], within=True).endswith("the outbox is empty, as this connection sees it")


def test_what_should_not_be_there_is_listed() -> None:
    """With the fields by which it is meant, if there are any."""
    assert unwanted(Expected(None, Fields()), [stored(data=1)]).splitlines() == [
        "an event was emitted once, where none was expected",
        "",
        "emitted:",
        "  1  order.paid  order 42 key customer-1  pending  1",
    ]
    assert unwanted(Expected("order.paid", Fields(data=ANY)), [stored()]).startswith("order.paid with data=<ANY>")


def test_a_message_is_bounded() -> None:
    """In events, in differences, and in what is shown of a value."""
    events = [stored(number, data={"text": "x" * 10_000}) for number in range(1, 101)]
    wanted = {f"key-{number}": "y" * 10_000 for number in range(100)}
    said = not_found(Expected("order.paid", Fields(data=wanted)), None, [], events, within=False)
    assert len(said) < 10_000
    assert "  and 80 more" in said
    assert "  and 89 more" in said
