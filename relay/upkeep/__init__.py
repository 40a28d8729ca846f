"""Jobs that run once over all processes of a service, their history, and what is done about rows that are over."""

from typing import TYPE_CHECKING

from relay.lazy import names_of

if TYPE_CHECKING:
    from relay.upkeep.jobs import Job, Jobs
    from relay.upkeep.run import Run
    from relay.upkeep.table import Child, Table

__all__ = ["Child", "Job", "Jobs", "Run", "Table"]

# What listens to jobs is loaded where there is no driver of Postgres.
__getattr__ = names_of(
    __name__,
    {
        "Child": "relay.upkeep.table",
        "Job": "relay.upkeep.jobs",
        "Jobs": "relay.upkeep.jobs",
        "Run": "relay.upkeep.run",
        "Table": "relay.upkeep.table",
    },
)
