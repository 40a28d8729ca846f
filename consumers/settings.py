"""Every knob of a process that consumes, read once from the environment and `.env`, and passed down from there."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator

from consumers.errors import ConfigurationError
from consumers.scratch import default_root
from idempotency import InvalidKeyError
from idempotency import Settings as StoreSettings
from relay import errors as relay_errors
from relay.kernel.duration import Duration, PositiveDuration, parse, written
from relay.pubsub_settings import PubSubSettings
from relay.setting_base import ends_too_late
from relay.setting_names import Namespace
from relay.upkeep_settings import UpkeepSettings

_SHORTEST_RETENTION = parse("1h")


class Settings(PubSubSettings, UpkeepSettings):
    """The names are the environment's, in lower case; a text that ends in a value gives the default."""

    NAMESPACE: ClassVar[Namespace] = Namespace(
        program="the consumers",
        command="python -m consumers config",
        prefixes=("CONSUMERS_", "IDEMPOTENCY_", "INBOX_"),
    )
    MISSING: ClassVar[Mapping[str, str]] = {
        "pubsub_project_id": "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your subscriptions",
        "redis_url": "REDIS_URL is not set; write it like rediss://:password@host:6379, or choose dedup='inbox' "
        "or 'none'",
        "database_url": "DATABASE_URL is not set; write it like postgresql://user:password@host:5432/db",
    }

    redis_url: SecretStr = SecretStr("")
    """The Redis of dedup='claim' and 'mark', required for them: redis, rediss, redis+cluster or redis+sentinel://."""
    redis_tls_verify: bool = True
    """Whether the certificate of a rediss:// server is checked; off for Heroku's, which are self-signed. on"""
    redis_ca_file: str = ""
    """The certificates that a rediss:// server is checked against; without it, those of the system."""
    idempotency_prefix: Annotated[str, Field(min_length=1)] = "pf"
    """What all keys in Redis begin with. Under another one all events are new. pf"""
    idempotency_ttl: PositiveDuration = parse("720h")
    """How long a processed event is remembered; longer than the subscription may deliver it again. 30d"""
    idempotency_lease: Annotated[PositiveDuration, Field(ge=parse("1s"))] = parse("60s")
    """How long an event of a consumer that died is left alone; a live one renews its lease four times as often. 1m"""

    database_url: SecretStr = SecretStr("")
    """The Postgres that has the inbox. Required for dedup='inbox', and not looked at for anything else."""
    inbox_schema: Annotated[str, Field(min_length=1)] = "public"
    """The schema of the inbox's tables. public"""
    inbox_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Handlers of a consumer with an inbox that run at once in a process, where it says nothing else. 10"""
    inbox_lease_ms: Annotated[PositiveDuration, Field(ge=parse("1s"))] = parse("60s")
    """How long a delivery of a process that died is left alone; handlers have three quarters of it. 1m"""
    inbox_heartbeat_ms: PositiveDuration = parse("15s")
    """How often a live process renews the leases of what it works on; at most half as long as they are. 15s"""
    inbox_poll_ms: Annotated[PositiveDuration, Field(ge=parse("10ms"))] = parse("500ms")
    """How often a process looks for what others have stored or left behind. 500ms"""
    inbox_max_attempts: Annotated[int, Field(ge=-1)] = 3
    """Attempts at a delivery, where its consumer has no retry policy; -1 is without an end. 3"""
    inbox_retry_base_ms: PositiveDuration = parse("5s")
    """And the wait after the first of them, doubling. 5s"""
    inbox_retry_max_ms: PositiveDuration = parse("120s")
    """Up to this long. 2m"""
    inbox_retry_jitter_ms: Duration = parse("500ms")
    """And so much more at random. 500ms"""
    inbox_max_defers: Annotated[int, Field(ge=-1)] = 1_000
    """How often a delivery may be deferred before it is failed, DEFERRED_TOO_OFTEN; -1 is without an end. 1000"""
    inbox_connections: Annotated[int, Field(ge=1, le=1_000)] = 4
    """Connections for ctx.transaction() at most, beside four for the inbox itself. 4"""
    inbox_wait_ms: Duration = parse("15s")
    """How long a request waits for a delivery, where its client does not say. 15s"""
    inbox_wait_most_ms: Duration = parse("30s")
    """And at most; keep it below the limit of the proxy before it: Heroku's router gives up at 30s. 30s"""
    inbox_retention: Duration = parse("90d")
    """How long a delivery is kept that was done or discarded; longer than the broker repeats. 0 keeps all. 90d"""
    inbox_retention_to: Literal["nowhere", "archive"] = "nowhere"
    """Where deliveries go after it: nowhere, or with their history into the schema archive. nowhere"""
    relay_schema: Annotated[str, Field(min_length=1)] = "public"
    """The schema of an outbox in the same database: for source='outbox', and what `reconcile` rebuilds from. public"""
    inbox_shard_index: Annotated[int, Field(ge=0)] = 0
    """Which part of the deliveries this process handles, from 0; the others leave it to this one. 0"""
    inbox_shard_count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Into how many parts they are divided: the same in every process of a consumer. 1"""

    consumers_max_messages: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Deliveries that each consumer holds in a process: worked on, waiting, or resting until an attempt. 1000"""
    consumers_max_bytes: Annotated[int, Field(ge=1)] = 64_000_000
    """And what they take in bytes; a delivery that is larger comes alone. 64000000"""
    consumers_ack_deadline: Annotated[PositiveDuration, Field(ge=parse("10s"), le=parse("10m"))] = parse("60s")
    """How long Pub/Sub leaves a delivery to a process that died; a live one extends it four times as often. 1m"""
    consumers_shutdown_ms: Duration = parse("25s")
    """How long handlers may take to end after SIGTERM; Heroku kills at 30s. 25s"""

    scratch_dir: str = ""
    """Where each attempt has a directory of its own while it lasts. Unset: outbox-scratch, with the temporary files."""

    consumers_name: str = ""
    """This process's name among several: `app` in each of its log lines, application_name where its inbox is."""
    consumers_log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log line that is written. info"""
    consumers_log_events: bool = False
    """Whether a line is logged for each delivery that was settled, beside those that failed: on or off. off"""
    consumers_log_redact: str = ""
    """module:function of your own that gets each line, and each text of an error, and returns what may be told."""
    consumers_stats_ms: PositiveDuration = parse("1m")
    """How often each consumer logs its consumer_stats line: what it did, what it holds, how it is. 1m"""
    dyno: str = ""
    """What Heroku calls this process, such as worker.1."""

    @field_validator("consumers_log_level", "inbox_retention_to", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("inbox_retention", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "0" if isinstance(value, str) and value.strip().lower() == "off" else value

    @field_validator("redis_url")
    @classmethod
    def _stripped(cls, value: SecretStr) -> SecretStr:
        return SecretStr(value.get_secret_value().strip())

    @field_validator("idempotency_prefix")
    @classmethod
    def _names_keys(cls, value: str) -> str:
        try:
            StoreSettings(prefix=value)
        except InvalidKeyError as error:
            raise ValueError(f"is {value!r:.100}: {error}") from None
        return value

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the settings together."""
        yield from super().faults()
        yield from ends_too_late("CONSUMERS_SHUTDOWN_MS", self.consumers_shutdown_ms, self.dyno)
        yield from self._inbox_faults()
        if self.scratch_dir and not Path(self.scratch_dir).is_absolute():
            yield f"SCRATCH_DIR is {self.scratch_dir!r:.100}; write an absolute path, such as /var/tmp/outbox-scratch"
        if not self.redis_ca_file:
            return
        if not self.redis_tls_verify:
            yield "REDIS_CA_FILE is set, and REDIS_TLS_VERIFY is off: nothing is checked against it; remove one of them"
        try:
            Path(self.redis_ca_file).read_bytes()
        except OSError as error:
            yield (
                f"REDIS_CA_FILE names {self.redis_ca_file!r}, which cannot be read: {error.strerror}; "
                "name a file with certificates that is there"
            )

    def _inbox_faults(self) -> Iterator[str]:
        if self.inbox_heartbeat_ms * 2 > self.inbox_lease_ms:
            yield (
                f"INBOX_HEARTBEAT_MS is {written(self.inbox_heartbeat_ms)}, more than half of INBOX_LEASE_MS, which is "
                f"{written(self.inbox_lease_ms)}: one late heartbeat would lose every lease; give a third of it or less"
            )
        if self.inbox_retry_max_ms < self.inbox_retry_base_ms:
            yield (
                f"INBOX_RETRY_MAX_MS is {written(self.inbox_retry_max_ms)}, less than INBOX_RETRY_BASE_MS, which is "
                f"{written(self.inbox_retry_base_ms)}; give that or more"
            )
        if self.inbox_wait_ms > self.inbox_wait_most_ms:
            yield (
                f"INBOX_WAIT_MS is {written(self.inbox_wait_ms)}, more than INBOX_WAIT_MOST_MS, which is "
                f"{written(self.inbox_wait_most_ms)}; give that or less"
            )
        if timedelta(0) < self.inbox_retention < _SHORTEST_RETENTION:
            yield (
                f"INBOX_RETENTION is {written(self.inbox_retention)}, after which duplicates would be handled again; "
                f"give {written(_SHORTEST_RETENTION)} or more, such as 90d, or 0 to keep all"
            )
        if self.inbox_max_attempts == 0:
            yield "INBOX_MAX_ATTEMPTS is 0; give 1 to try once, more to retry, or -1 for no limit"
        if self.inbox_shard_index >= self.inbox_shard_count:
            yield (
                f"INBOX_SHARD_INDEX is {self.inbox_shard_index} of INBOX_SHARD_COUNT, {self.inbox_shard_count}; "
                f"the parts count from 0 to {self.inbox_shard_count - 1}"
            )

    @property
    def scratch_root(self) -> Path:
        """Where scratch directories are."""
        return Path(self.scratch_dir) if self.scratch_dir else default_root()

    @property
    def store(self) -> StoreSettings:
        """What is said of the store."""
        return StoreSettings(prefix=self.idempotency_prefix, ttl=self.idempotency_ttl, lease=self.idempotency_lease)


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
    try:
        return Settings.load(**overrides)
    except relay_errors.ConfigurationError as error:
        raise ConfigurationError(str(error)) from None
