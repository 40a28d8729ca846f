"""The jobs that RELAY_APP names, beside the consumers of a process: their slots are kept where its inbox is."""

from collections.abc import Sequence

from consumers.backstage import redaction
from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.settings import Settings
from relay import errors as relay_errors
from relay.kernel.clock import Clock
from relay.kernel.line_redaction import Redaction
from relay.kernel.loop import Loop
from relay.kernel.observe import Observe, ShutdownBegan, ShutdownEnded
from relay.kernel.shutdown import Shutdown
from relay.kernel.supervise import supervise


def faults(settings: Settings) -> list[str]:
    """A sentence for each thing that keeps them from running; none where no jobs are named.

    They are imported by it: before there is an event loop, near which some modules do not bear to be imported.
    """
    if not settings.relay_app:
        return []
    found: list[str] = []
    if not (url := settings.database_url.get_secret_value()):
        found.append(f"{Settings.MISSING['database_url']} (RELAY_APP names jobs, whose slots are kept there)")
    try:
        checked(url)
        _check(settings)
    except (ConfigurationError, relay_errors.ConfigurationError) as error:
        found += str(error).splitlines()
    return found


def _check(settings: Settings) -> None:
    from relay.upkeep.loading import api_of, load_jobs  # noqa: PLC0415 -- loads libpq, which others do without

    api_of(load_jobs(settings.relay_app), settings)


def loops(settings: Settings, clock: Clock, observe: Observe) -> list[Loop]:
    """A loop for each of them."""
    if not settings.relay_app:
        return []
    # Load libpq, which others do without.
    from relay.upkeep.building import job_loops, job_runners  # noqa: PLC0415
    from relay.upkeep.loading import load_jobs  # noqa: PLC0415
    from relay.upkeep.surroundings import surroundings  # noqa: PLC0415

    jobs = load_jobs(settings.relay_app)
    url = checked(settings.database_url.get_secret_value())
    runners = job_runners(
        jobs,
        surroundings(
            jobs,
            settings,
            observe,
            url=url,
            app=settings.consumers_name,
            schema=settings.inbox_schema,
            schema_setting="INBOX_SCHEMA",
        ),
        history_for=settings.relay_runs_retention,
        clock=clock,
        redaction=Redaction(redaction(settings)),
    )
    return job_loops(runners, clock, observe)


async def run(
    loops: Sequence[Loop], shutdown: Shutdown, clock: Clock, soft_timeout: float, observe: Observe
) -> tuple[str, ...]:
    """Run them until shutdown, of which others tell, and name those that did not end in time.

    Raises what a loop died of, and asks for the shutdown before: that is no job's own failure, which ends nothing.
    """

    def heard(event: object) -> None:
        if not isinstance(event, ShutdownBegan | ShutdownEnded):
            observe(event)

    return await supervise(loops, shutdown, clock, soft_timeout, heard) if loops else ()
