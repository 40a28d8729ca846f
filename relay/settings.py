"""Every knob of the relay, read once from the environment and `.env`, and passed down from there."""

from typing import Annotated, Any, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from relay.errors import ConfigurationError
from relay.kernel.duration import Duration, parse


class Settings(BaseSettings):
    """The names are the environment's, in lower case; a comment that ends in a value gives the default."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore", frozen=True, hide_input_in_errors=True)

    # Where the outbox is, as a libpq URL or key-value string. Required by every command that reads it.
    database_url: SecretStr = SecretStr("")
    # The schema of the outbox's tables. public
    relay_schema: Annotated[str, Field(min_length=1)] = "public"

    # The project of topics that are named without one. Required to publish.
    pubsub_project_id: Annotated[
        str, Field(validation_alias=AliasChoices("PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"))
    ] = ""
    # host:port of an emulator; nothing leaves the machine then, and no credentials are asked for.
    pubsub_emulator_host: str = ""
    # A regional endpoint, such as europe-west1-pubsub.googleapis.com:443. The global one
    pubsub_endpoint: str = ""

    # Where events go that name no topic. domain-events
    relay_topic: Annotated[str, Field(min_length=1)] = "domain-events"
    # Rows of each kind that one transaction claims; fewer cost more transactions an event. 1000
    relay_batch_size: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    # How long an idle relay sleeps before it looks again, and up to how much longer. 500 ms, 250 ms
    relay_poll_ms: Duration = parse("500ms")
    relay_poll_jitter_ms: Duration = parse("250ms")
    # How long one batch may wait for the broker; its rows stay locked meanwhile. 15 s
    relay_publish_budget_ms: Duration = parse("15s")
    # When the database ends a session that waits inside a transaction; above the budget. 20 s
    relay_idle_tx_ms: Duration = parse("20s")
    # The longest pause after the broker failed; the first is 500 ms, each next one double. 10 s
    relay_outage_max_ms: Duration = parse("10s")
    # How long what is in flight may take to end after SIGTERM; Heroku kills at 30 s. 25 s
    relay_shutdown_ms: Duration = parse("25s")
    # How long one tick may take in all, and each runner of it. 480 s, 60 s
    relay_tick_max_ms: Duration = parse("480s")
    relay_runner_max_ms: Duration = parse("60s")
    # The least severe log line that is written. info
    relay_log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("relay_log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("database_url")
    @classmethod
    def _is_conninfo(cls, value: SecretStr) -> SecretStr:
        try:
            conninfo_to_dict(value.get_secret_value())
        except ProgrammingError as error:
            # libpq repeats parts of the string, and with them perhaps the password.
            raise ValueError("is not a connection string; write it like postgresql://user:password@host:5432/db") from (
                error
            )
        return value

    def require_database(self) -> str:
        """The connection string. Raises ConfigurationError when there is none."""
        if not self.database_url.get_secret_value():
            raise ConfigurationError("DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db")
        return self.database_url.get_secret_value()

    def require_project(self) -> str:
        """The Pub/Sub project. Raises ConfigurationError when there is none."""
        if not self.pubsub_project_id:
            raise ConfigurationError("PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your topics")
        return self.pubsub_project_id


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_sentence(fault["loc"], fault["msg"]) for fault in error.errors())) from None
    if settings.relay_publish_budget_ms >= settings.relay_idle_tx_ms:
        raise ConfigurationError(
            f"RELAY_PUBLISH_BUDGET_MS ({settings.relay_publish_budget_ms}) must stay below "
            f"RELAY_IDLE_TX_MS ({settings.relay_idle_tx_ms}), or the database ends batches that still wait"
        )
    return settings


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    name = str(location[0]).upper() if location else "the settings"
    return f"{name} {message.removeprefix('Value error, ')}"
