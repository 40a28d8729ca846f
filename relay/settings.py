"""Every knob of the relay, read once from the environment and `.env`, and passed down from there."""

import base64
import json
import os
from collections.abc import Collection, Iterator
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from relay.errors import ConfigurationError
from relay.kernel.duration import Duration, PositiveDuration, parse
from relay.kernel.supervise import CANCEL_SECONDS, CLOSE_SECONDS
from relay.routes import Routes

_MISSING = {
    "database_url": "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db",
    "pubsub_project_id": "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your topics",
}

# Names that later releases know; here they would only look as if they worked.
_RESERVED = frozenset(
    [
        "RELAY_SLOTS",
        "RELAY_NOTIFY",
        "RELAY_LISTEN_URL",
        "RELAY_ON_FAILED_HEAD",
        "RELAY_SHARD_INDEX",
        "RELAY_SHARD_COUNT",
        "RELAY_RETENTION",
    ]
)
# Names that are not ours to judge: of the test suite and of the embedded stack.
_OTHERS = frozenset({"RELAY_TEST_ROOT"})

FIRST_OUTAGE = timedelta(milliseconds=500)
_HARD_END = timedelta(seconds=CANCEL_SECONDS + CLOSE_SECONDS + 0.5)
_HEROKU_KILLS = timedelta(seconds=30)
_BELOW = (("relay_publish_budget_ms", "relay_idle_tx_ms", "or the database ends batches that still wait"),)
_AT_MOST = (
    ("relay_retry_base_ms", "relay_retry_max_ms"),
    ("relay_idle_min_ms", "relay_idle_max_ms"),
    ("relay_runner_max_ms", "relay_tick_max_ms"),
    ("relay_publish_budget_ms", "relay_runner_max_ms"),
)
_LONGEST_IN_POSTGRES = timedelta(days=24)


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

    google_cloud_project: str = ""
    """What platforms set. PUBSUB_PROJECT_ID goes over it, wherever either is set."""
    pubsub_project_id: Annotated[str, Field(validate_default=True)] = ""
    """The project of topics that are named without one. Required to publish, or GOOGLE_CLOUD_PROJECT."""
    pubsub_emulator_host: str = ""
    """host:port of an emulator; nothing leaves the machine then, and no credentials are asked for."""
    pubsub_endpoint: str = ""
    """A regional endpoint, such as europe-west1-pubsub.googleapis.com:443. The global one"""
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
    relay_poll_ms: PositiveDuration = parse("500ms")
    """How long an idle relay sleeps before it looks again. 500ms"""
    relay_poll_jitter_ms: Duration = parse("250ms")
    """Up to how much longer it sleeps, so that several relays do not look at the same moment. 250ms"""
    relay_publish_budget_ms: PositiveDuration = parse("15s")
    """How long one batch may wait for the broker; its rows stay locked meanwhile. 15s"""
    relay_idle_tx_ms: PositiveDuration = parse("20s")
    """When the database ends a session that waits inside a transaction; above the budget. 20s"""
    relay_outage_max_ms: PositiveDuration = parse("10s")
    """The longest pause after the broker failed; the first is 500ms, each next one double. 10s"""
    relay_max_attempts: Annotated[int, Field(ge=1)] = 25
    """How often an event may fail by its own fault before it is kept as failed, for an operator to look at. 25"""
    relay_retry_base_ms: PositiveDuration = parse("5s")
    """How long an event waits after its first failure; each next wait is double. 5s"""
    relay_retry_max_ms: PositiveDuration = parse("120s")
    """The longest wait of an event between two attempts, jitter included. 120s"""
    relay_retry_jitter_ms: Duration = parse("500ms")
    """Up to how much longer an event waits, so that those that failed together do not return together. 500ms"""
    relay_shutdown_ms: Duration = parse("25s")
    """How long what is in flight may take to end after SIGTERM; Heroku kills at 30s. 25s"""
    relay_runners: str = "publish"
    """What `relay run` and `relay tick` do, as a list with commas, in its order. publish"""
    relay_runner_max_items: Annotated[int, Field(ge=1)] = 200
    """How many items each pass of a runner takes up; publish is bounded by time alone. 200"""
    relay_tick_max_ms: PositiveDuration = parse("480s")
    """How long one tick may take in all. 480s"""
    relay_runner_max_ms: PositiveDuration = parse("60s")
    """How long each pass of a runner may take; it is then asked to end, and cancelled RELAY_IDLE_TX_MS later. 60s"""
    relay_busy_ms: Duration = parse("250ms")
    """The pause of a runner other than publish while it has work left. 250ms"""
    relay_idle_min_ms: PositiveDuration = parse("1s")
    """The first pause of a runner other than publish that found nothing to do; each next one is double. 1s"""
    relay_idle_max_ms: PositiveDuration = parse("30s")
    """The longest pause of a runner other than publish that found nothing to do. 30s"""
    relay_idle_jitter_ms: Duration = parse("500ms")
    """Up to how much longer an idle runner other than publish pauses. 500ms"""
    relay_error_backoff_ms: PositiveDuration = parse("30s")
    """The pause of a runner other than publish after it failed. 30s"""
    relay_error_backoff_jitter_ms: Duration = parse("2s")
    """Up to how much longer a runner other than publish pauses after it failed. 2s"""

    relay_app: Annotated[str, Field(min_length=1)] = "outbox-relay"
    """How connections to the database and log lines are named, to tell relays apart. outbox-relay"""
    relay_log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log line that is written. info"""
    relay_log_events: bool = False
    """Whether a line is logged for each event that was published, beside the one of its batch: on or off. off"""
    relay_log_redact: str = ""
    """module:function of your own that gets each line as a dict and returns what may be written of it."""
    relay_stats_ms: PositiveDuration = parse("60s")
    """How often `relay run` logs its relay_stats line: what is due, what failed, what it did. 60s"""
    relay_http: str = ""
    """Where health and metrics are served: a port of this machine alone, host:port, or off."""
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
            raise ValueError(f"must not be longer than {_LONGEST_IN_POSTGRES.days}d, the most that Postgres takes")
        return value

    @field_validator("database_url")
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
            _key_of(text)
        return SecretStr(text)

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
        """What is in GOOGLE_CREDENTIALS_JSON, or None when it is not set."""
        text = self.google_credentials_json.get_secret_value()
        return _key_of(text) if text else None

    @property
    def _key_file(self) -> str:
        """The file that would be read: an emulator asks for none, and a key in the environment goes over it."""
        unread = self.pubsub_emulator_host or self.google_credentials_json.get_secret_value()
        return "" if unread else self.google_application_credentials


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("\n".join(map(_sentence, error.errors()))) from None
    except (SettingsError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the environment or .env cannot be read: {error}") from None
    if faults := list(_inconsistencies(settings)):
        raise ConfigurationError("\n".join(faults))
    return settings


def strangers() -> list[str]:
    """A sentence for each RELAY_ name in the environment or .env that has no effect. None holds a value."""
    try:
        written = {name.upper() for name in (*os.environ, *dotenv_values(".env"))}
    except (OSError, UnicodeDecodeError):
        return []  # `load` says it
    known = {name.upper() for name in Settings.model_fields}
    return [
        _stranger(name, known) for name in sorted(written - known) if name.startswith("RELAY_") and name not in _OTHERS
    ]


def _stranger(name: str, known: Collection[str]) -> str:
    if name in _RESERVED:
        return f"{name} has no effect in this release; remove it"
    ours = [other.removeprefix("RELAY_") for other in known if other.startswith("RELAY_")]
    near = get_close_matches(name.removeprefix("RELAY_"), ours, n=1)
    return f"{name} is no setting of the relay and has no effect; " + (
        f"did you mean RELAY_{near[0]}?" if near else "`python -m relay config` lists them all"
    )


def _inconsistencies(settings: Settings) -> Iterator[str]:
    """A sentence for each pair of values that cannot both be meant."""
    for lower, higher, why in _BELOW:
        low, high = getattr(settings, lower), getattr(settings, higher)
        if low >= high:
            yield f"{lower.upper()} ({low}) must stay below {higher.upper()} ({high}), {why}"
    for lower, higher in _AT_MOST:
        low, high = getattr(settings, lower), getattr(settings, higher)
        if low > high:
            yield (
                f"{lower.upper()} ({low}) is longer than {higher.upper()} ({high}); lower the first or raise the second"
            )
    if settings.relay_outage_max_ms < FIRST_OUTAGE:
        yield (
            f"RELAY_OUTAGE_MAX_MS ({settings.relay_outage_max_ms}) is shorter than the first pause after the broker "
            f"failed ({FIRST_OUTAGE}); set it to 500ms or more"
        )
    if settings.dyno and settings.relay_shutdown_ms + _HARD_END >= _HEROKU_KILLS:
        yield (
            f"RELAY_SHUTDOWN_MS ({settings.relay_shutdown_ms}) and the {_HARD_END.total_seconds():g} s after it do not "
            f"end before Heroku kills {settings.dyno} at 30 s; set it to 25s or less"
        )
    if settings.pubsub_emulator_host and settings.pubsub_endpoint:
        yield (
            f"PUBSUB_EMULATOR_HOST ({settings.pubsub_emulator_host}) and PUBSUB_ENDPOINT ({settings.pubsub_endpoint}) "
            "name two brokers; remove one of them"
        )
    if fault := _file_fault(settings._key_file):  # noqa: SLF001 -- of this module
        yield f"GOOGLE_APPLICATION_CREDENTIALS names {settings.google_application_credentials!r}, which {fault}"
    try:
        Routes.parse(settings.relay_routes, settings.relay_topic)
    except ValueError as error:
        yield f"RELAY_ROUTES {error}"


def _file_fault(path: str) -> str | None:
    """Why the file is no credentials; nothing of its content is repeated."""
    if not path:
        return None
    try:
        key = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        return f"cannot be read: {error.strerror}; name a file that is there, or use GOOGLE_CREDENTIALS_JSON"
    except ValueError:
        key = None
    return None if isinstance(key, dict) else "is no JSON object; name a key or federation file, unchanged"


def _sentence(fault: ErrorDetails) -> str:
    """What is wrong, with the value; our own validators name it themselves where it is no secret."""
    name = str(fault["loc"][0]).upper() if fault["loc"] else "the settings"
    if fault["type"] == "value_error":
        return f"{name} {fault['msg'].removeprefix('Value error, ')}"
    return f"{name} is {fault['input']!r:.100}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _key_of(text: str) -> dict[str, Any]:
    try:
        # Not strict: a `.env` file in double quotes turns the \n of a private key into line breaks.
        key = json.loads(text if text.startswith("{") else _from_base64(text), strict=False)
    except ValueError:
        key = None
    if isinstance(key, dict):
        return key
    # Said here: the parsers' own sentences repeat parts of the key.
    raise ValueError(
        "is neither a key file's JSON nor its base64; set it to the content of the file, or to what "
        "`base64 < key.json` prints"
    )


def _from_base64(text: str) -> bytes:
    """Decode either alphabet, in one line or many, padded or not."""
    one_line = "".join(text.split()).translate(str.maketrans("-_", "+/")).rstrip("=")
    return base64.b64decode(one_line + "=" * (-len(one_line) % 4), validate=True)


def _text(value: str | SecretStr) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
