"""Jobs that run once over all processes of a service, their history, and what is done about rows that are over."""

from relay.upkeep.jobs import Job, Jobs
from relay.upkeep.run import Run
from relay.upkeep.table import Child, Table

__all__ = ["Child", "Job", "Jobs", "Run", "Table"]
