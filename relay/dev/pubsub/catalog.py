"""The topics and subscriptions of one emulator."""

import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from relay.dev.pubsub import limits, wire
from relay.dev.pubsub.status import AlreadyExistsError, InvalidArgumentError, NotFoundError, UnimplementedError
from relay.dev.pubsub.subscription import Policy, Subscription

DELETED_TOPIC = "_deleted-topic_"

_NOT_EMULATED = (
    "push_config.push_endpoint",
    "bigquery_config",
    "cloud_storage_config",
    "bigtable_config",
    "filter",
    "enable_exactly_once_delivery",
    "message_transforms",
)
_RETENTION_SECONDS = 7 * 24 * 3600
_MIN_BACKOFF_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 600.0


class Catalog:
    """Topics and subscriptions by name: the state of the emulator, and the publishing into it."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._wall = wall
        self._topics: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._attached: dict[str, dict[str, Subscription]] = {}
        self._rules = limits.PublishRules()
        self._message_number = count(1)

    def create_topic(self, topic: Any) -> Any:
        """Store a topic and return it as the service would describe it."""
        limits.check_topic_name(topic.name)
        if topic.name in self._topics:
            raise AlreadyExistsError(f"the topic {topic.name} exists already")
        topic.state = wire.TOPIC_ACTIVE
        self._topics[topic.name] = topic
        self._attached[topic.name] = {}
        return topic

    def topic(self, name: str) -> Any:
        """Return a topic's description."""
        limits.check_topic_name(name)
        if name not in self._topics:
            raise NotFoundError(f"there is no topic {name}")
        return self._topics[name]

    def topics(self, project: str) -> list[Any]:
        """Return the topics of a project, by name."""
        limits.check_project(project)
        return [self._topics[name] for name in _of_project(project, self._topics)]

    def delete_topic(self, name: str) -> None:
        """Drop a topic; its subscriptions stay, with what they hold, and receive nothing more."""
        self.topic(name)
        del self._topics[name]
        for subscription in self._attached.pop(name):
            self._settings[subscription].topic = DELETED_TOPIC

    def subscriptions_of(self, topic: str) -> list[str]:
        """Return the names of a topic's subscriptions."""
        self.topic(topic)
        return sorted(self._attached[topic])

    def create_subscription(self, settings: Any) -> Any:
        """Attach a subscription to its topic and return it as the service would describe it."""
        limits.check_subscription_name(settings.name)
        self.topic(settings.topic)
        _refuse_what_is_not_emulated(settings)
        if settings.name in self._settings:
            raise AlreadyExistsError(f"the subscription {settings.name} exists already")
        _fill_defaults(settings)
        subscription = Subscription(_policy(settings), self._clock, f"{uuid.uuid4().hex[:12]}-")
        self._settings[settings.name] = settings
        self._subscriptions[settings.name] = subscription
        self._attached[settings.topic][settings.name] = subscription
        return settings

    def settings(self, name: str) -> Any:
        """Return a subscription's description."""
        self.subscription(name)
        return self._settings[name]

    def subscription(self, name: str) -> Subscription:
        """Return a subscription's deliveries."""
        limits.check_subscription_name(name)
        if name not in self._subscriptions:
            raise NotFoundError(f"there is no subscription {name}")
        return self._subscriptions[name]

    def subscriptions(self, project: str) -> list[Any]:
        """Return the subscriptions of a project, by name."""
        limits.check_project(project)
        return [self._settings[name] for name in _of_project(project, self._settings)]

    def delete_subscription(self, name: str) -> None:
        """Drop a subscription with all that it holds; its consumers are told."""
        self.subscription(name).delete()
        topic = self._settings.pop(name).topic
        self._attached.get(topic, {}).pop(name, None)
        del self._subscriptions[name]

    def publish(self, request: Any, raw: bytes) -> list[str]:
        """Store the messages of a PublishRequest, parsed and as it came; return their ids, or refuse all."""
        self.topic(request.topic)
        self._rules.check_request(request.messages, len(raw))
        bodies = wire.messages_of(raw, request.messages)
        ordering_key = self._rules.check_messages(request.messages, bodies)
        now = wire.publish_time(self._wall())
        ids = [str(next(self._message_number)) for _ in bodies]
        stored = [b"".join((body, now, wire.message_id(number))) for body, number in zip(bodies, ids, strict=True)]
        for subscription in self._attached[request.topic].values():
            subscription.publish(stored, ordering_key)
        return ids

    def clear(self) -> None:
        """Forget everything, as a service of which nothing was kept; consumers are told."""
        for subscription in self._subscriptions.values():
            subscription.delete()
        for names in (self._topics, self._settings, self._subscriptions, self._attached):
            names.clear()

    def wake(self) -> None:
        """Let every waiting consumer look again: at a fault, at the end, at a clock that moved."""
        for subscription in self._subscriptions.values():
            subscription.notify()


def _of_project(project: str, names: dict[str, Any]) -> Iterator[str]:
    return (name for name in sorted(names) if name.startswith(f"{project}/"))


def _refuse_what_is_not_emulated(settings: Any) -> None:
    for path in _NOT_EMULATED:
        value = settings
        for part in path.split("."):
            value = getattr(value, part)
        if value and value != type(value)():
            raise UnimplementedError(f"the emulator does not implement subscriptions with {path}")


def _fill_defaults(settings: Any) -> None:
    settings.ack_deadline_seconds = limits.ack_deadline(settings.ack_deadline_seconds)
    settings.state = wire.SUBSCRIPTION_ACTIVE
    if not settings.HasField("message_retention_duration"):
        settings.message_retention_duration.seconds = _RETENTION_SECONDS


def _policy(settings: Any) -> Policy:
    retry = settings.retry_policy
    lowest = highest = 0.0
    if settings.HasField("retry_policy"):
        lowest = _seconds(retry, "minimum_backoff", _MIN_BACKOFF_SECONDS)
        highest = _seconds(retry, "maximum_backoff", _MAX_BACKOFF_SECONDS)
    return Policy(
        ack_deadline=settings.ack_deadline_seconds,
        ordered=settings.enable_message_ordering,
        counts_attempts=settings.HasField("dead_letter_policy"),
        min_backoff=lowest,
        max_backoff=max(lowest, highest),
    )


def _seconds(policy: Any, name: str, default: float) -> float:
    if not policy.HasField(name):
        return default
    seconds: float = getattr(policy, name).ToTimedelta().total_seconds()
    if not 0 <= seconds <= _MAX_BACKOFF_SECONDS:
        raise InvalidArgumentError(f"a {name} of {seconds} s is outside 0 to {_MAX_BACKOFF_SECONDS:.0f} seconds")
    return seconds
