"""One of each event of jobs."""

from datetime import UTC, datetime
from typing import Final

from relay.errors import ApiError
from relay.upkeep.events import JobEvent, RunBegan, RunDeaf, RunEnded, RunFault, RunSkipped, RunUnrecorded, Status

SLOT: Final = datetime(2026, 3, 1, 3, 17, tzinfo=UTC)
WORKER: Final = "ingest:host:7:0190"
REFUSED: Final = ApiError("HTTP_503", "POST /digest was answered with status 503")


def ended(status: Status = Status.DONE, errors: int = 0, error: Exception | None = None) -> RunEnded:
    """A run that has come to this end."""
    return RunEnded("ingest", SLOT, WORKER, status, {"rows": 7}, errors, 1.23456, error)


EVENTS: Final[list[JobEvent]] = [
    RunBegan("ingest", SLOT, WORKER),
    RunFault("ingest", WORKER, "source a", REFUSED),
    *(ended(status) for status in Status if status is not Status.RUNNING),
    RunDeaf("ingest", WORKER, Status.TIMED_OUT),
    RunSkipped("ingest", SLOT, WORKER),
    RunUnrecorded("ingest", WORKER, REFUSED),
]
