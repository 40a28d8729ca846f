"""What the runs of a process work with, built alike by whatever program runs them."""

from collections.abc import Iterable

from relay.kernel.observe import Observe
from relay.postgres.connect import connect_async
from relay.upkeep.archive.errand import Address
from relay.upkeep.archive.place import Place
from relay.upkeep.jobs import Job
from relay.upkeep.loading import api_of
from relay.upkeep.run import Surroundings
from relay.upkeep_settings import UpkeepSettings


def surroundings(  # noqa: PLR0913 -- each by its name
    jobs: Iterable[Job],
    settings: UpkeepSettings,
    observe: Observe,
    *,
    url: str,
    app: str,
    schema: str,
    schema_setting: str = "RELAY_SCHEMA",
) -> Surroundings:
    """All that these jobs may ask for. `app` is how their sessions are named.

    Raises ConfigurationError with a sentence for each thing that a job calling the API lacks; what an archive lacks is
    said to the job that asks for it.
    """
    return Surroundings(
        connect=lambda: connect_async(url, app),
        schema=schema,
        observe=observe,
        schema_setting=schema_setting,
        api=api_of(jobs, settings),
        archive=Address(url, app, schema, Place.of(settings)),
    )
