"""What the doctor says of jobs that nobody runs."""

from datetime import UTC, datetime, timedelta

import pytest

from relay.operate.doctor.jobs import judge_jobs
from relay.upkeep import Jobs, Run

NOW = datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


def jobs() -> Jobs:
    """One every two minutes, and one a day."""
    made = Jobs()

    @made.every("2m")
    async def ingest(run: Run) -> None: ...

    @made.cron("17 3 * * *")
    async def clean_up(run: Run) -> None: ...

    return made


@pytest.mark.parametrize(
    ("ingested", "cleaned", "said"),
    [
        (timedelta(minutes=1), timedelta(hours=9), ["of 2 job(s) that these settings name, each has its slots taken"]),
        (timedelta(minutes=11), timedelta(days=2), ["of 2 job(s) that these settings name, each has its slots taken"]),
        (
            timedelta(minutes=21),
            timedelta(hours=9),
            ["ingest (every 2m) had its last slot at 2026-03-01T11:40:00Z, and 3 "],
        ),
        (
            None,
            timedelta(days=3, hours=9),
            ["ingest has never been begun", "clean_up (cron 17 3 * * *) had its last slot at 2026-02-26T03:01:00Z, "],
        ),
    ],
)
def test_jobs_whose_slots_go_by_are_named(
    ingested: timedelta | None, cleaned: timedelta | None, said: list[str]
) -> None:
    """A tick every ten minutes is somebody."""
    rows = [
        {"job": name, "last_slot": None if ago is None else NOW - ago, "now": NOW}
        for name, ago in (("ingest", ingested), ("clean_up", cleaned))
    ]
    found = judge_jobs(jobs(), rows)
    assert [finding.found.startswith(words) for finding, words in zip(found, said, strict=True)] == [True] * len(said)
