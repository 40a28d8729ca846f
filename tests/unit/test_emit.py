"""How an event is written for the database: what becomes JSON, and what is refused before it is sent."""

import enum
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field

from relay import Actor, InvalidEventError
from relay.emit import _encode
from tests.support.outbox import event


class Colour(enum.Enum):
    """An enum of no JSON type."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum that is a number."""

    HIGH = 3


@dataclass
class Point:
    """A plain dataclass."""

    x: int


class Line(BaseModel):
    """A model with an alias."""

    unit_price: Decimal = Field(alias="unitPrice")


def written(data: Any) -> Any:
    """What arrives of the data."""
    return json.loads(_encode([event(data=data)], order_lock=True))[0]["data"]


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("data", "arrives"),
    [
        (None, None),
        (0, 0),
        ([], []),
        (datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2024-01-02T03:04:05.000006Z"),
        (date(2024, 1, 2), "2024-01-02"),
        (timedelta(hours=36), "P1DT12H"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Point(1), {"x": 1}),
        (Line(unitPrice=Decimal("9.90")), {"unitPrice": "9.90"}),
        ({1}, [1]),
        ((1, 2), [1, 2]),
        (b"text", "text"),
        ({7: "a"}, {"7": "a"}),
        (2**200, 2**200),
        ("grüße 😀", "grüße 😀"),
        ("a literal \\u0000", "a literal \\u0000"),
        ({"\\u0000": "\\\\u0000"}, {"\\u0000": "\\\\u0000"}),
    ],
)
def test_data_is_written_the_way_pydantic_writes_it(data: Any, arrives: Any) -> None:
    """A service hands over what it has; a number that must stay exact becomes a text."""
    assert written({"value": [data]}) == {"value": [arrives]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (float("nan"), "not JSON compliant"),
        (float("-inf"), "not JSON compliant"),
        ("a\0b", "NUL character"),
        ({"a": {"key\0": 1}}, "NUL character"),
        ("\\\0", "NUL character"),
        ("\ud800", "surrogates not allowed"),
        ({"\udfff": 1}, "surrogates not allowed"),
        (b"\xff", "invalid utf-8"),
        (object(), "Unable to serialize unknown type"),
        ({uuid.UUID(int=5): 1}, "keys must be"),
        ([10**5_000], "4300 digits"),
        (nested(100_000), "recursion"),
    ],
)
def test_what_is_not_json_is_refused_before_it_is_sent(data: Any, words: str) -> None:
    """An error of the database would cost the caller the transaction."""
    with pytest.raises(InvalidEventError, match=words) as refused:
        written({"value": data})
    assert str(refused.value).startswith("order.paid: the data ")


def test_what_refers_to_itself_is_refused() -> None:
    """It has no end."""
    data: list[Any] = []
    data.append(data)

    with pytest.raises(InvalidEventError, match="Circular reference"):
        written(data)


def test_an_actor_keeps_its_further_fields_and_is_checked_like_data() -> None:
    """Nothing of it is replaced by null in silence."""
    since = datetime(2024, 1, 1, tzinfo=UTC)
    (sent,) = json.loads(_encode([event(actor=Actor(type="user", id="7", since=since))], order_lock=True))

    assert sent["actor"] == {"type": "user", "id": "7", "since": "2024-01-01T00:00:00Z"}
    with pytest.raises(InvalidEventError, match="not JSON compliant"):
        _encode([event(actor=Actor(type="user", id="7", score=float("inf")))], order_lock=True)


def test_only_what_was_said_is_sent() -> None:
    """The function's own defaults apply to the rest."""
    (sent,) = json.loads(_encode([event()], order_lock=True))
    (unlocked,) = json.loads(_encode([event()], order_lock=False))

    assert sorted(sent) == ["aggregate_id", "aggregate_type", "attributes", "data", "event_type", "version"]
    assert unlocked["order_lock"] is False
