"""Every knob of the relay, read once from the environment and `.env`, and passed down from there."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from relay.errors import ConfigurationError
from relay.google_key import key_of_file, key_of_text
from relay.kernel.duration import Duration, PositiveDuration, parse, written
from relay.setting_names import stray
from relay.setting_rules import inconsistencies

_MISSING = {
    "database_url": "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db",
    "pubsub_project_id": "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your topics",
}

_LONGEST_IN_POSTGRES = parse("24d")
_LONGEST_NAME_IN_POSTGRES = 63


class Settings(BaseSettings):
    """The names are the environment's, in lower case; a text that ends in a value gives the default."""

    model_config = SettingsConfigDict(
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        use_attribute_docstrings=True,
    )

    database_url: SecretStr = SecretStr("")
    """Where the outbox is, as a libpq URL or key-value string. Required by every command that reads it."""
    relay_schema: Annotated[str, Field(min_length=1)] = "public"
    """The schema of the outbox's tables. public"""

    relay_notify: bool = True
    """Whether an idle `relay run` sleeps until an event is stored, or polls at RELAY_POLL_MS: on or off. on"""
    relay_listen_url: SecretStr = SecretStr("")
    """A direct connection to the same database, where DATABASE_URL leads to a pooler; on it a relay is woken."""

    google_cloud_project: str = ""
    """What platforms set. PUBSUB_PROJECT_ID goes over it, wherever either is set."""
    pubsub_project_id: Annotated[str, Field(validate_default=True)] = ""
    """The project of topics that are named without one. Required to publish, or GOOGLE_CLOUD_PROJECT."""
    pubsub_emulator_host: str = ""
    """host:port of an emulator; nothing leaves the machine then, and no credentials are asked for."""
    pubsub_endpoint: str = ""
    """A regional endpoint, such as europe-west1-pubsub.googleapis.com:443; without it, the global one."""
    google_credentials_json: SecretStr = SecretStr("")
    """The content of a key or federation file, as JSON or its base64; goes over GOOGLE_APPLICATION_CREDENTIALS."""

    google_application_credentials: str = ""
    """A key or federation file; without it and GOOGLE_CREDENTIALS_JSON, the credentials that Google's library finds."""

    relay_broker: Literal["pubsub"] = "pubsub"
    """Which kind of broker the topics are in. pubsub"""
    relay_topic: Annotated[str, Field(min_length=1)] = "domain-events"
    """Where events go that name no topic and that no route sends elsewhere. domain-events"""
    relay_routes: str = ""
    """Topics by event type, such as order.*=orders,invoice.paid=billing; a topic that an event names goes over it."""
    relay_batch_size: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """Rows of each kind that one transaction claims; fewer cost more transactions an event. 1000"""
    relay_slots: Annotated[int, Field(ge=1, le=16)] = 3
    """Batches that are under way side by side while there is more than one, each on a connection of its own. 3"""
    relay_poll_ms: PositiveDuration = parse("500ms")
    """How long an idle relay waits before it looks again while it does not sleep, see RELAY_NOTIFY. 500ms"""
    relay_poll_jitter_ms: Duration = parse("250ms")
    """Up to how much longer it waits, so that several relays do not look at the same moment. 250ms"""
    relay_publish_budget_ms: PositiveDuration = parse("15s")
    """How long one batch may wait for the broker, each request less than a third of it; rows stay locked. 15s"""
    relay_idle_tx_ms: PositiveDuration = parse("20s")
    """When the database ends a session that waits inside a transaction; above the budget. 20s"""
    relay_outage_max_ms: PositiveDuration = parse("10s")
    """The longest pause after the broker failed; the first is 500ms, each next one double. 10s"""
    relay_max_attempts: Annotated[int, Field(ge=1)] = 25
    """How often an event may fail by its own fault before it is kept as failed, for an operator to look at. 25"""
    relay_retry_base_ms: PositiveDuration = parse("5s")
    """How long an event waits after its first failure; each next wait is double. 5s"""
    relay_retry_max_ms: PositiveDuration = parse("2m")
    """The longest wait of an event between two attempts, jitter included. 2m"""
    relay_retry_jitter_ms: Duration = parse("500ms")
    """Up to how much longer an event waits, so that those that failed together do not return together. 500ms"""
    relay_on_failed_head: str = "block"
    """Whether a key waits behind an event that failed for good: block or skip, by type as block,audit.*=skip. block"""
    relay_shutdown_ms: Duration = parse("25s")
    """How long what is in flight may take to end after SIGTERM; Heroku kills at 30s. 25s"""
    relay_runners: str = "publish"
    """What `relay run` and `relay tick` do, as a list with commas, in its order. publish"""
    relay_runner_max_items: Annotated[int, Field(ge=1)] = 200
    """How many items each pass of a runner takes up; publish is bounded by time alone. 200"""
    relay_tick_max_ms: PositiveDuration = parse("8m")
    """How long one tick may take in all. 8m"""
    relay_runner_max_ms: PositiveDuration = parse("1m")
    """How long each pass of a runner may take; it is then asked to end, and cancelled RELAY_IDLE_TX_MS later. 1m"""
    relay_busy_ms: Duration = parse("250ms")
    """The pause of a runner other than publish while it has work left. 250ms"""
    relay_idle_min_ms: PositiveDuration = parse("1s")
    """The first pause of a runner other than publish that found nothing to do; each next one is double. 1s"""
    relay_idle_max_ms: PositiveDuration = parse("30s")
    """The longest pause of another idle runner; and how often a relay that sleeps looks without being woken. 30s"""
    relay_idle_jitter_ms: Duration = parse("500ms")
    """Up to how much longer an idle runner other than publish pauses. 500ms"""
    relay_error_backoff_ms: PositiveDuration = parse("30s")
    """The pause of a runner other than publish after it failed. 30s"""
    relay_error_backoff_jitter_ms: Duration = parse("2s")
    """Up to how much longer a runner other than publish pauses after it failed. 2s"""

    relay_app: str = ""
    """This relay's name among several: application_name in pg_stat_activity, and `app` in each of its log lines."""
    relay_log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log line that is written. info"""
    relay_log_events: bool = False
    """Whether a line is logged for each event that was published, beside the one of its batch: on or off. off"""
    relay_log_redact: str = ""
    """module:function of your own that gets each line as a dict and returns what may be written of it."""
    relay_stats_ms: PositiveDuration = parse("1m")
    """How often `relay run` logs its relay_stats line: what is due, what failed, what it did. 1m"""
    relay_http: str = ""
    """Where `relay run` serves health and metrics: a port of this machine alone, host:port, or off."""
    relay_http_token: SecretStr = SecretStr("")
    """The bearer token that HTTP requests carry. Required where RELAY_HTTP is reached from other machines."""
    port: str = ""
    """Where a platform sends requests; taken for RELAY_HTTP on a web dyno alone."""
    dyno: str = ""
    """What Heroku calls this process, such as web.1."""

    @field_validator("relay_broker", "relay_log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("pubsub_project_id")
    @classmethod
    def _or_of_the_platform(cls, value: str, known: ValidationInfo) -> str:
        return value or str(known.data.get("google_cloud_project", ""))

    @field_validator("relay_idle_tx_ms")
    @classmethod
    def _fits_postgres(cls, value: timedelta) -> timedelta:
        if value > _LONGEST_IN_POSTGRES:
            raise ValueError(f"must not be longer than {written(_LONGEST_IN_POSTGRES)}, the most that Postgres takes")
        return value

    @field_validator("database_url", "relay_listen_url")
    @classmethod
    def _is_conninfo(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()
        if text[:1] in {"'", '"'}:
            raise ValueError("begins with a quote; remove the quotes around it")
        scheme, plus, _ = text.partition("://")[0].partition("+")
        if plus and scheme.startswith("postgres"):
            raise ValueError("names a driver in its scheme; write postgresql:// without the + and what follows it")
        try:
            conninfo_to_dict(text)
        except ProgrammingError:
            # libpq repeats parts of the string, and with them perhaps the password.
            raise ValueError(
                "is not a connection string; write it like postgresql://user:password@host:5432/db"
            ) from None
        return SecretStr(text)

    @field_validator("google_credentials_json")
    @classmethod
    def _is_key(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()
        if text:
            key_of_text(text)
        return SecretStr(text)

    @field_validator("relay_app")
    @classmethod
    def _fits_application_name(cls, value: str) -> str:
        if len(value) > _LONGEST_NAME_IN_POSTGRES or not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"is {value!r:.100}, which Postgres would change; "
                f"write up to {_LONGEST_NAME_IN_POSTGRES} printable ASCII characters"
            )
        return value

    @property
    def runners(self) -> tuple[str, ...]:
        """The names in RELAY_RUNNERS, each once, in its order."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.relay_runners.split(",")))))

    def require(self, *names: str) -> None:
        """Raise ConfigurationError with a sentence for each of these settings that is not set."""
        missing = [_MISSING[name] for name in names if not _text(getattr(self, name))]
        if missing:
            raise ConfigurationError(". ".join(missing))

    def require_database(self) -> str:
        """The connection string. Raises ConfigurationError when there is none."""
        self.require("database_url")
        return self.database_url.get_secret_value()

    def require_project(self) -> str:
        """The Pub/Sub project. Raises ConfigurationError when there is none."""
        self.require("pubsub_project_id")
        return self.pubsub_project_id

    def google_key(self) -> dict[str, Any] | None:
        """What GOOGLE_CREDENTIALS_JSON holds, or else the file that GOOGLE_APPLICATION_CREDENTIALS names.

        None where neither is set, and with an emulator, which asks for none. Google's library would find the file too,
        but not where `.env` names it. Raises ConfigurationError where the file is none.
        """
        match self.google_key_source:
            case "GOOGLE_CREDENTIALS_JSON":
                return key_of_text(self.google_credentials_json.get_secret_value())
            case "GOOGLE_APPLICATION_CREDENTIALS":
                return key_of_file(self.google_application_credentials)
            case _:
                return None

    @property
    def google_key_source(self) -> str:
        """The setting that the key comes from; empty where there is none."""
        for name in () if self.pubsub_emulator_host else ("google_credentials_json", "google_application_credentials"):
            if _text(getattr(self, name)):
                return name.upper()
        return ""


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("\n".join(map(_sentence, error.errors()))) from None
    except (SettingsError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the environment or .env cannot be read: {error}") from None
    faults = list(inconsistencies(dict(settings)))
    try:
        settings.google_key()
    except ConfigurationError as error:
        faults.append(str(error))
    if faults:
        raise ConfigurationError("\n".join(faults))
    return settings


def sources() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What the environment sets, and what `.env` does, ours or not, by names in capitals; an empty value sets nothing.

    A file that cannot be read sets nothing here: `load` says it.
    """
    environment = EnvSettingsSource(Settings).env_vars
    try:
        file = DotEnvSettingsSource(Settings).env_vars
    except (OSError, UnicodeDecodeError):
        file = {}
    return _set(environment), _set(file)


def strangers() -> list[str]:
    """A sentence for each RELAY_ name in the environment or .env that has no effect. None holds a value."""
    environment, file = sources()
    return stray({*environment, *file}, [name.upper() for name in Settings.model_fields])


def _set(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name.upper(): value.strip() for name, value in values.items() if value and value.strip()}


def _sentence(fault: ErrorDetails) -> str:
    """What is wrong, with the value; our own validators name it themselves where it is no secret."""
    name = str(fault["loc"][0]).upper() if fault["loc"] else "the settings"
    if fault["type"] == "value_error":
        return f"{name} {fault['msg'].removeprefix('Value error, ')}"
    if fault["type"].startswith("bool_"):
        return f"{name} is {fault['input']!r:.100}: write on or off"
    return f"{name} is {fault['input']!r:.100}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _text(value: str | SecretStr) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
