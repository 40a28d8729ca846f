"""What an event is, and what it refuses by itself.

The limits that it shares with the database are in tests/integration/test_emit.py, each with both sides' words.
"""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from relay import Actor, Event, InvalidEventError
from tests.support.outbox import event

LATE_IN_PARIS = datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))


def refusal(**fields: Any) -> str:
    """The words with which the event is refused."""
    with pytest.raises(InvalidEventError) as refused:
        event(**fields)
    return str(refused.value)


def test_a_refusal_names_every_wrong_field_with_its_size_and_limit() -> None:
    """Whoever reads the log of a failed request has to see at once what to shorten."""
    words = refusal(event_type="", aggregate_id="é" * 600)

    assert words == (
        "Event: event_type has 0 bytes, the limit is 1 to 255; aggregate_id has 1200 bytes, the limit is 1 to 1024"
    )


def test_a_refusal_does_not_repeat_the_data() -> None:
    """Payloads hold what must not reach a log."""
    assert "secret" not in refusal(data={"card": "secret"}, version=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"actor": "Jane Doe"}, "Actor: is of type str, not an object"),
        ({"actor": ["Jane Doe"]}, "Actor: is of type list, not an object"),
        ({"attributes": "Jane Doe"}, "Event: attributes is of type str, not an object"),
    ],
)
def test_what_should_be_an_object_is_told_by_its_type_alone(fields: dict[str, Any], words: str) -> None:
    """Who did it is part of the payload, whatever the caller took for an actor."""
    assert refusal(**fields) == words
    with pytest.raises(InvalidEventError, match=r"^Event: is of type str, not an object$"):
        Event.model_validate("Jane Doe")


def test_missing_and_unknown_fields_are_named() -> None:
    """A misspelt field must not be lost on the way."""
    with pytest.raises(InvalidEventError, match="Event: has no data; has the unknown field dta"):
        Event.model_validate({"event_type": "a", "aggregate_type": "b", "aggregate_id": "c", "dta": 1})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"aggregate_id": 5}, "aggregate_id is of type int, not a text"),
        ({"topic": "a\0b"}, "topic contains a NUL character"),
        ({"topic": "\ud800"}, "topic contains a lone surrogate"),
        ({"topic": "bad topic"}, "Event: topic 'bad topic' is no topic's name: those begin with a letter"),
        ({"topic": "ab"}, "Event: topic 'ab' has 2 character(s), a topic's name has 3 to 255"),
        ({"topic": "topics/orders"}, "topic 'topics/orders' is neither the name of a topic nor projects/<project>"),
        ({"attributes": {"sequence": "5"}}, "Event: attribute 'sequence' is set by the relay itself"),
        ({"occurred_at": datetime(2024, 1, 1)}, "occurred_at "),  # noqa: DTZ001 -- what is refused
        ({"occurred_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "not in the years 1 to 9999"),
    ],
)
def test_each_field_is_refused_in_words(fields: dict[str, Any], words: str) -> None:
    """The sentence carries the field, and the value where it can be shown."""
    assert words in refusal(**fields)


def test_moments_are_kept_in_utc() -> None:
    """One moment has one form, whatever zone the caller computes in, seconds of an offset included."""
    odd = timezone(timedelta(hours=1, seconds=13))

    assert event(occurred_at=LATE_IN_PARIS).occurred_at == LATE_IN_PARIS
    assert str(event(occurred_at=LATE_IN_PARIS).occurred_at) == "2023-12-31 23:30:00+00:00"
    assert event(available_at=datetime(2024, 1, 1, tzinfo=odd)).available_at == datetime(
        2023, 12, 31, 22, 59, 47, tzinfo=UTC
    )


def test_an_event_does_not_change_and_can_be_copied_between_processes() -> None:
    """It is a value."""
    one = event(actor=Actor(type="user", id="7", role="admin"))

    with pytest.raises(ValidationError, match="frozen"):
        setattr(one, "event_type", "other")  # noqa: B010 -- the type checker knows that it is frozen
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 -- our own bytes
