"""Retention of the outbox: events that were published long ago leave it, and nothing else does."""

from datetime import timedelta
from typing import Final

from relay.upkeep.jobs import OURS, Job
from relay.upkeep.run import Run
from relay.upkeep.schedule import Every
from relay.upkeep.table import Destination, Table
from relay.upkeep.table_name import TableName

NAME: Final = f"{OURS}retention"
INTERVAL: Final = timedelta(minutes=10)
TIMEOUT: Final = timedelta(minutes=8)


def published_events(schema: str, retention: timedelta, to: Destination) -> Table:
    """Those of an outbox that were published so long ago. What is pending or has failed has no such time."""
    return Table(
        name=str(TableName(schema, "outbox_events")),
        age="published_at",
        older_than=retention,
        to=to,
        born="created_at",
    )


def retention_job(schema: str, retention: timedelta, to: Destination) -> Job | None:
    """The job that moves them; None where all are kept."""
    if not retention:
        return None
    events = published_events(schema, retention, to)

    async def retire(run: Run) -> None:
        await run.move(events)

    return Job(NAME, Every(INTERVAL), retire, TIMEOUT.total_seconds())
