"""Times, as an operator writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from relay.kernel import moment

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2h", timedelta(hours=2)),
        ("2024-01-31T12:00:00Z", NOON),
        ("2024-01-31 12:00", NOON),
        ("2024-01-31T12:00:00+01:00", datetime(2024, 1, 31, 12, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_a_time_is_how_long_ago_or_when(text: str, read: object) -> None:
    """One without a zone is UTC."""
    assert moment.read(text) == read


def test_what_is_neither_is_refused() -> None:
    """With both ways to write it."""
    with pytest.raises(ValueError, match="'yesterday' is neither a duration such as 2h nor an RFC 3339 time"):
        moment.read("yesterday")


def test_how_long_ago_is_told_from_now() -> None:
    """And a time is what it is."""
    assert moment.before(NOON, timedelta(hours=2)) == NOON - timedelta(hours=2)
    assert moment.before(NOON, NOON) == NOON
    assert moment.before(NOON, None) is None
