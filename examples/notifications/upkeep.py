"""Three cycles, as jobs: what is new is read, what is over is moved away, what was moved away becomes files."""

import os
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from psycopg.types.json import Jsonb

from relay import Event, emit_async
from relay.upkeep import Jobs, Run, Table

MINUTE: Final = float(os.environ.get("MINUTE_SECONDS", "60"))  # shorter where nobody has hours to watch
TYPE: Final = "storm.announced"
REGISTER: Final = Path(__file__).with_name("register.sql").read_bytes()

jobs = Jobs()
outside = partial(httpx.AsyncClient, base_url=os.environ.get("OUTSIDE_URL", ""))


@jobs.every(10 * MINUTE)
async def ingest(run: Run) -> None:
    """Read every service; one that fails, or says what nobody understands, is none of the others' business."""
    async with outside() as services:
        for service in ("coast", "alps"):
            try:
                reports = (await services.get(f"/reports/{service}")).raise_for_status().json()
                async with run.transaction() as connection:
                    news = await connection.execute(REGISTER, {"service": service, "reports": Jsonb(reports)})
                    events = [
                        Event(event_type=TYPE, aggregate_type="storm", aggregate_id=storm, dedup_key=storm, data=data)
                        async for storm, data in news
                    ]
                    await emit_async(connection, events)
                run.count("news", len(events))
            except Exception as error:  # noqa: BLE001 -- whatever it is, the next one is read, and this one again
                run.fault(error, service)


@jobs.cron("17 3 * * *", timezone="Europe/Berlin")
async def clean_up(run: Run) -> None:
    """Move what is over into the schema `archive`; of finished deliveries, INBOX_RETENTION_TO says so."""
    await run.move(Table(name="sources", age="read_at", older_than="365d"))


@jobs.cron("17 4 * * *", timezone="Europe/Berlin", timeout="2h")
async def archive(run: Run) -> None:
    """Make files of the months that are complete, and drop what was verified thirty days ago."""
    await run.export()
    await run.drop_exported()
