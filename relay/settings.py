"""Every knob of the relay, read once from the environment and `.env`, and passed down from there."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator

from relay.kernel.duration import Duration, PositiveDuration, parse, written
from relay.postgres.connect import connection_string
from relay.pubsub_settings import PubSubSettings
from relay.setting_names import Namespace
from relay.setting_rules import inconsistencies
from relay.upkeep_settings import UpkeepSettings

_LONGEST_IN_POSTGRES = parse("24d")
_LONGEST_NAME_IN_POSTGRES = 63


class Settings(PubSubSettings, UpkeepSettings):
    """The names are the environment's, in lower case; a text that ends in a value gives the default."""

    NAMESPACE: ClassVar[Namespace] = Namespace(
        program="the relay",
        command="python -m relay config",
        prefixes=("RELAY_", "ARCHIVE_", "WORKER_API_"),
        reserved=frozenset({"RELAY_SHARD_INDEX", "RELAY_SHARD_COUNT"}),
    )
    MISSING: ClassVar[Mapping[str, str]] = {
        **PubSubSettings.MISSING,
        "database_url": "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db",
    }

    database_url: SecretStr = SecretStr("")
    """Where the outbox is, as a libpq URL or key-value string. Required by every command that reads it."""
    relay_schema: Annotated[str, Field(min_length=1)] = "public"
    """The schema of the outbox's tables. public"""

    relay_notify: bool = True
    """Whether an idle `relay run` sleeps until an event is stored, or polls at RELAY_POLL_MS: on or off. on"""
    relay_listen_url: SecretStr = SecretStr("")
    """A direct connection to the same database, where DATABASE_URL leads to a pooler; on it a relay is woken."""

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
    relay_runners: str = "publish,retention,jobs"
    """What `relay run` and `relay tick` do, as a list with commas, in its order. publish,retention,jobs"""
    relay_runner_max_items: Annotated[int, Field(ge=1)] = 200
    """How many items each pass of a runner takes up; publish and jobs are bounded by time alone. 200"""
    relay_tick_max_ms: PositiveDuration = parse("8m")
    """How long one tick may take in all. 8m"""
    relay_runner_max_ms: PositiveDuration = parse("1m")
    """How long a pass of publish may take; it is then asked to end, and cancelled RELAY_IDLE_TX_MS later. 1m"""
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

    relay_retention: Duration = parse("30d")
    """How long a published event is kept, and its dedup_key holds; failed ones stay. 0 or off keeps all. 30d"""
    relay_retention_to: Literal["nowhere", "archive"] = "nowhere"
    """Where events go after it: nowhere, or into the schema archive, from which `relay archive` exports. nowhere"""

    relay_name: str = ""
    """This relay's name among several: application_name in pg_stat_activity, and `app` in each of its log lines."""
    relay_log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log line that is written. info"""
    relay_log_events: bool = False
    """Whether a line is logged for each event that was published, beside the one of its batch: on or off. off"""
    relay_log_redact: str = ""
    """module:function of your own that gets each line, and each text of an error, and returns what may be told."""
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

    @field_validator("relay_broker", "relay_log_level", "relay_retention_to", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("relay_retention", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "0" if isinstance(value, str) and value.strip().lower() == "off" else value

    @field_validator("relay_idle_tx_ms")
    @classmethod
    def _fits_postgres(cls, value: timedelta) -> timedelta:
        if value > _LONGEST_IN_POSTGRES:
            raise ValueError(f"must not be longer than {written(_LONGEST_IN_POSTGRES)}, the most that Postgres takes")
        return value

    @field_validator("database_url", "relay_listen_url")
    @classmethod
    def _is_conninfo(cls, value: SecretStr) -> SecretStr:
        return SecretStr(connection_string(value.get_secret_value()))

    @field_validator("relay_name")
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

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the settings together."""
        yield from inconsistencies(dict(self))
        yield from super().faults()

    def require_database(self) -> str:
        """The connection string. Raises ConfigurationError when there is none."""
        self.require("database_url")
        return self.database_url.get_secret_value()


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
    return Settings.load(**overrides)
