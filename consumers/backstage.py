"""What consumers work with, built from settings: Pub/Sub, and one store for all of a process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from redis.asyncio import Redis, RedisCluster

from consumers.dead_letters import CarefulDeadLetters, DeadLetters
from consumers.dedup.claim import ClaimDedup
from consumers.dedup.mark import MarkDedup
from consumers.dedup.none import NoDedup
from consumers.dedup.protocol import Dedup, Mode
from consumers.errors import ConfigurationError
from consumers.handlers import Defaults
from consumers.inbox.address import checked
from consumers.outside import Outside
from consumers.retry import Exponential
from consumers.settings import Settings
from consumers.sources.neighbours import Neighbours
from consumers.sources.pubsub import PubSubSource
from consumers.sources.pubsub_dead_letters import PubSubDeadLetters
from consumers.sources.source import Origin, Source
from idempotency import InvalidUrlError, Manager, connect
from relay import errors as relay_errors
from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_credentials import credentials_of
from relay.kernel import line_redaction
from relay.kernel.observe import Observe

if TYPE_CHECKING:
    from consumers.app import Consumer


class Backstage:
    """Builds what each consumer of a process works with, over one client of Redis; nothing connects before its use."""

    def __init__(self, settings: Settings, *, outlived: bool) -> None:
        self._settings = settings
        self._outlived = outlived
        self._redis = redis_of(settings)
        self._neighbours = Neighbours()
        self._store = None if self._redis is None else Manager(self._redis, settings.store)

    def of(self, consumer: "Consumer", observe: Observe) -> Outside:
        """What this consumer works with. Raises ConfigurationError where there are no credentials."""
        settings = self._settings
        if consumer.dedup is Mode.INBOX:
            return self._with_inbox(consumer, observe)
        address = self._address
        return Outside(
            source=self._subscription(address, consumer, observe),
            dedup=self._dedup(consumer),
            dead_letters=self._dead_letters(address, consumer),
            observe=observe,
            locks=self._store,
            outlived=self._outlived,
            # Whatever rests is held: where that were all there is room for, nothing new would come in.
            most_resting=max(1, settings.consumers_max_messages // 2),
            scratch_root=settings.scratch_root,
            sweeps=True,
        )

    @property
    def _address(self) -> PubSubAddress:
        return PubSubAddress(**self._settings.address())

    def _dead_letters(self, address: PubSubAddress, consumer: "Consumer") -> DeadLetters:
        return CarefulDeadLetters(
            PubSubDeadLetters(address, consumer.dead_letter_topic),
            # What the hook fails on, it fails on in the delivery's line as well, and is told of there.
            line_redaction.Redaction(redaction(self._settings)),
        )

    def _subscription(self, address: PubSubAddress, consumer: "Consumer", observe: Observe) -> PubSubSource:
        settings = self._settings
        deadline = settings.consumers_ack_deadline.total_seconds()
        return PubSubSource(
            address,
            consumer.subscription,
            consumer=consumer.name,
            max_messages=settings.consumers_max_messages,
            max_bytes=settings.consumers_max_bytes,
            observe=observe,
            deadline=round(deadline),
            extend_every=deadline / 4,
        )

    def _with_inbox(self, consumer: "Consumer", observe: Observe) -> Outside:
        from consumers.inbox import building  # noqa: PLC0415 -- loads libpq, which others do without

        settings = self._settings
        upstream: Source | building.OutboxOf
        dead_letters: DeadLetters | None
        match consumer.source:
            case Origin.OUTBOX:
                upstream = building.OutboxOf(settings.relay_schema, self._neighbours)
                dead_letters = None
            case Origin.PUBSUB:
                address = self._address
                upstream = self._subscription(address, consumer, observe)
                dead_letters = self._dead_letters(address, consumer)
            case _:
                assert_never(consumer.source)
        place = building.Place(
            url=checked(settings.database_url.get_secret_value()),
            schema=settings.inbox_schema,
            app=settings.consumers_name,
            lease_seconds=settings.inbox_lease_ms.total_seconds(),
            heartbeat_seconds=settings.inbox_heartbeat_ms.total_seconds(),
            poll_seconds=settings.inbox_poll_ms.total_seconds(),
            connections=settings.inbox_connections,
            shard=settings.inbox_shard_index,
            shards=settings.inbox_shard_count,
            retention=settings.inbox_retention or None,
            retention_to=settings.inbox_retention_to,
        )
        built = building.build(
            place,
            consumer=consumer.name,
            handlers=consumer.handlers,
            upstream=upstream,
            dead_letters=dead_letters,
            shard_key=consumer.shard_by,
            confirmers=consumer.confirmers,
            observe=observe,
        )
        return Outside(
            source=built.source,
            dedup=built.dedup,
            effects=built.effects,
            sends=built.sends,
            backlog=built.backlog,
            dead_letters=built.dead_letters,
            observe=observe,
            locks=self._store or built.locks,
            most_deferrals=settings.inbox_max_defers,
            defaults=Defaults(
                concurrency=settings.inbox_concurrency,
                timeout=settings.inbox_lease_ms * 0.75,
                retry=Exponential(
                    settings.inbox_retry_base_ms,
                    most=settings.inbox_retry_max_ms,
                    jitter=settings.inbox_retry_jitter_ms,
                    max_attempts=settings.inbox_max_attempts,
                ),
            ),
            outlived=self._outlived,
            scratch_root=settings.scratch_root,
            sweeps=True,
        )

    async def close(self) -> None:
        """Let go of Redis, when no consumer works any more."""
        if self._redis is not None:
            await self._redis.aclose()

    def _dedup(self, consumer: "Consumer") -> Dedup:
        match consumer.dedup:
            case Mode.NONE:
                return NoDedup()
            case Mode.CLAIM if self._store is not None:
                return ClaimDedup(self._store, consumer.name)
            case Mode.MARK if self._store is not None:
                return MarkDedup(self._store, consumer.name)
            case Mode.CLAIM | Mode.MARK:
                raise ConfigurationError(Settings.MISSING["redis_url"])
            case Mode.INBOX:
                raise ValueError("an inbox is built with its source")
            case _:
                assert_never(consumer.dedup)


def refusals(settings: Settings) -> list[str]:
    """A sentence for each thing that a start refuses of settings that can be read, found without connecting.

    What is only missing is none of them: `missing` tells it.
    """
    faults: list[str] = []
    for check in (_credentials, redis_of, redaction):
        try:
            check(settings)
        except (ConfigurationError, relay_errors.ConfigurationError) as error:
            faults += str(error).splitlines()
    return faults


def missing(settings: Settings, consumers: "Sequence[Consumer]") -> list[str]:
    """A sentence for each setting that these consumers need and that is not set."""
    with_broker = not consumers or any(consumer.source is Origin.PUBSUB for consumer in consumers)
    faults = [Settings.MISSING["pubsub_project_id"]] if with_broker and not settings.pubsub_project_id else []
    if not settings.redis_url.get_secret_value():
        faults += [
            f"{Settings.MISSING['redis_url']} (consumer {consumer.name!r} has dedup={consumer.dedup.value!r})"
            for consumer in consumers
            if consumer.dedup in (Mode.CLAIM, Mode.MARK)
        ]
    if not settings.database_url.get_secret_value():
        faults += [
            f"{Settings.MISSING['database_url']} (consumer {consumer.name!r} has dedup={consumer.dedup.value!r})"
            for consumer in consumers
            if consumer.dedup is Mode.INBOX
        ]
    return faults


def redaction(settings: Settings) -> line_redaction.Redact | None:
    """The user's own hook for what is written, sent and shown. Raises ConfigurationError where it cannot be had."""
    try:
        return line_redaction.load(settings.consumers_log_redact, "CONSUMERS_LOG_REDACT")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _credentials(settings: Settings) -> None:
    if settings.google_key_source:
        credentials_of(settings.google_key() or {}, settings.google_key_source)


def redis_of(settings: Settings) -> Redis | RedisCluster | None:
    """A client that connects with its first request; None without a REDIS_URL."""
    url = settings.redis_url.get_secret_value()
    if not url:
        return None
    try:
        return connect(url, verify=settings.redis_tls_verify, ca_file=settings.redis_ca_file or None)
    except InvalidUrlError as error:
        raise ConfigurationError(f"REDIS_URL cannot be used: {error}") from None
