"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from relay.kernel.duration import Duration, PositiveDuration, parse, written


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500", 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("15m", 900),
        ("720h", 2_592_000),
        ("30d", 2_592_000),
        ("0", 0),
        (" 30 s ", 30),
        ("30S", 30),
        ("0500", 0.5),
        ("36500d", 36_500 * 86_400),
        (500, 0.5),
        (timedelta(seconds=3), 3),
    ],
)
def test_durations_are_read(text: object, seconds: float) -> None:
    """A bare number counts milliseconds."""
    assert parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "-1", "-5s", "+5s", "1.5s", 1.5, "1e3", "s", "five", "5 seconds", "5w", "1h30m", "٣s", None, True, "5s\n6"],
)
def test_anything_else_is_refused(text: object) -> None:
    """The sentence repeats the value and shows how to write it."""
    with pytest.raises(ValueError, match="is not a duration; write it like 500ms, 30s, 15m, 720h or 30d") as refusal:
        parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("text", ["36501d", "999999999999d", "999999999999h"])
def test_a_duration_beyond_a_century_is_refused(text: str) -> None:
    """It is a typing error, and no clock could count it."""
    with pytest.raises(ValueError, match="is longer than 36500d"):
        parse(text)


def test_zero_is_refused_where_it_is_nonsense() -> None:
    """A pause of zero would be a loop that never rests."""
    assert TypeAdapter(Duration).validate_python("0") == timedelta(0)
    for zero in ("0", "0d", timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValidationError, match="must be longer than zero"):
            TypeAdapter(PositiveDuration).validate_python(zero)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(milliseconds=1_500), "1500ms"),
        (timedelta(seconds=15), "15s"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(hours=36), "36h"),
        (timedelta(hours=720), "30d"),
        (timedelta(microseconds=1_999), "1ms"),
    ],
)
def test_durations_are_written_as_people_do(duration: timedelta, text: str) -> None:
    """One number and the largest unit that needs no fraction."""
    assert written(duration) == text


@given(st.integers(min_value=0, max_value=36_500 * 86_400_000))
def test_what_is_written_reads_as_the_same(milliseconds: int) -> None:
    """What a command prints can be put into a setting."""
    duration = timedelta(milliseconds=milliseconds)
    assert parse(written(duration)) == duration
