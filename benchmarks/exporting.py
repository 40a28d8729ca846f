"""The one job of a relay that exports while it publishes: RELAY_APP=benchmarks.exporting:jobs."""

from relay.upkeep import Jobs, Run

jobs = Jobs()

_FORGET = """
    update archive_exports
       set state = 'sealed', rows = null, files = '[]', verified_at = null, drop_eligible_at = null
"""


@jobs.every("24h", timeout="30m")
async def export(run: Run) -> None:
    """The same month again and again, until the process ends."""
    while not run.stopping:
        await run.export()
        async with run.transaction() as connection:
            await connection.execute(_FORGET)
