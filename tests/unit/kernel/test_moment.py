"""Times, as an operator writes them and as a script is told them."""

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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2024-01-31 13:00:00.5+01", "2024-01-31T12:00:00.500000Z"),
        ("infinity", "infinity"),
        ("12024-01-31 12:00:00+00", "12024-01-31 12:00:00+00"),
    ],
)
def test_a_script_is_told_a_time_of_postgres_as_rfc_3339(text: str, told: str) -> None:
    """What Python has no time for stays as Postgres wrote it."""
    assert moment.rfc3339_of(text) == told
