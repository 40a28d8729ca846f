"""Days and microseconds as Postgres writes them; Postgres itself is asked in the integration tests."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upkeep.archive import moments

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_of_pythons_own_years_is_written_alike(moment: datetime) -> None:
    """To the microsecond."""
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)

    assert datetime.fromisoformat(moments.timestamptz_text(microseconds)) == moment
    assert moments.date_text(microseconds // 86_400_000_000) == moment.date().isoformat()


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-719_162, "0001-01-01"),
        (-719_163, "0001-12-31 BC"),
        (-735_160, "0044-03-15 BC"),
        (-2_440_550, "4713-01-01 BC"),
        (2_932_897, "10000-01-01"),
        (2**31 - 1, "infinity"),
        (-(2**31), "-infinity"),
    ],
)
def test_dates_beyond_pythons_years_have_their_era(days: int, text: str) -> None:
    """There is no year 0."""
    assert moments.date_text(days) == text


def test_the_era_stands_behind_the_zone() -> None:
    """As Postgres has it."""
    microseconds = (-719_163 * 86_400 + 1) * 1_000_000

    assert moments.timestamptz_text(microseconds) == "0001-12-31 00:00:01+00 BC"
    assert moments.timestamp_text(microseconds) == "0001-12-31 00:00:01 BC"
    assert moments.timestamptz_text(2**63 - 1) == "infinity"
    assert moments.timestamptz_text(-(2**63)) == "-infinity"
