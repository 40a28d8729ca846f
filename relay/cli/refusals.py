"""What `relay run` refuses of settings that can be read, found without connecting to anything."""

from relay.brokers.pubsub_credentials import credentials_of
from relay.cli.parts import redaction
from relay.cli.runners import RUNNERS, SomeJobs, chosen, jobs_of, nothing_to_run
from relay.errors import ConfigurationError
from relay.operate.http.address import Address, http_address, resolved
from relay.postgres.connect import conninfo
from relay.settings import Settings
from relay.upkeep.loading import api_of


def refusals(settings: Settings) -> list[str]:
    """A sentence for each. What is only missing is none of them: `Settings.require` tells it."""
    faults: list[str] = []
    for check in (_database, _listening, _credentials, _runners, _log, _http):
        try:
            check(settings)
        except ConfigurationError as error:
            faults += str(error).splitlines()
    return faults


def site_address(settings: Settings) -> Address | None:
    """Where health and metrics are served; None where HTTP is off. Raises ConfigurationError."""
    token = settings.relay_http_token.get_secret_value()
    return http_address(settings.relay_http, token, settings.port, settings.dyno)


def _database(settings: Settings) -> None:
    if url := settings.database_url.get_secret_value():
        conninfo(url, settings.relay_name)


def _listening(settings: Settings) -> None:
    if url := settings.relay_listen_url.get_secret_value():
        conninfo(url, settings.relay_name, "RELAY_LISTEN_URL")


def _credentials(settings: Settings) -> None:
    if settings.google_key_source:
        credentials_of(settings.google_key() or {}, settings.google_key_source)


def _runners(settings: Settings) -> None:
    kinds = [RUNNERS[name] for name in chosen(settings, RUNNERS)]
    jobs = jobs_of(settings)
    if not jobs and all(isinstance(kind, SomeJobs) for kind in kinds):
        raise ConfigurationError(nothing_to_run(settings))
    api_of(jobs, settings)


def _log(settings: Settings) -> None:
    redaction(settings)


def _http(settings: Settings) -> None:
    if address := site_address(settings):
        resolved(address)
