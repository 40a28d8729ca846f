"""The jobs that RELAY_APP names, `shop.upkeep:jobs`, and what those need that call the internal API."""

import re
from collections.abc import Iterable
from importlib.util import find_spec

from relay.errors import ConfigurationError
from relay.extras import installed_by
from relay.kernel.loading import load, look_here
from relay.upkeep.http import HttpJob
from relay.upkeep.jobs import Job, Jobs
from relay.upkeep.run import Api
from relay.upkeep_settings import UpkeepSettings

# What a header can carry, and nobody has pasted with a line end behind it.
_TOKEN = re.compile(r"[!-~]{1,8192}")


def load_jobs(app: str) -> Jobs:
    """Import them; none where nothing is named. Raises ConfigurationError with one sentence."""
    if not app:
        return Jobs()
    look_here()
    try:
        (jobs,) = load(app, Jobs, "shop.upkeep:jobs", ConfigurationError)
    except ValueError as error:
        raise ConfigurationError(f"RELAY_APP: {error}") from error
    return jobs


def api_of(jobs: Iterable[Job], settings: UpkeepSettings) -> Api | None:
    """What calls the API; None where the settings name none, or nothing is there to call it with.

    Raises ConfigurationError with a sentence for each thing that one of the jobs needs and that is not there.
    """
    base, token = settings.worker_api_base_url, settings.worker_api_service_token.get_secret_value()
    installed = find_spec("httpx") is not None
    faults: list[str] = []
    if named := [job.name for job in jobs if isinstance(job.work, HttpJob)]:
        job = f"(job {named[0]!r} calls the API)"
        if not base:
            faults.append(f"WORKER_API_BASE_URL is not set; write it like https://api.internal {job}")
        if not token:
            faults.append(
                "WORKER_API_SERVICE_TOKEN is not set, and nothing is called without one; set it to what the API "
                f"expects in the header x-service-token {job}"
            )
        if not installed:
            faults.append(f"HTTP jobs need the package 'httpx'; run: {installed_by('http')} {job}")
    if token and not _TOKEN.fullmatch(token):
        faults.append("WORKER_API_SERVICE_TOKEN has characters that no header can carry; write it on one line of ASCII")
    if faults:
        raise ConfigurationError("\n".join(faults))
    if not (base and token and installed):
        return None
    from relay.upkeep.api import ServiceApi  # noqa: PLC0415 -- loads what most do without

    return ServiceApi(base, token)
