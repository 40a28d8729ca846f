"""The one job of a relay that exports while it publishes: RELAY_APP=benchmarks.exporting:jobs."""

from relay.upkeep import Jobs, Run

jobs = Jobs()


@jobs.every("24h", timeout="30m")
async def export(run: Run) -> None:
    """Once, at the start."""
    await run.export()
