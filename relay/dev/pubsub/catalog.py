"""The topics and subscriptions of one emulator."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from relay.dev.pubsub import limits, wire
from relay.dev.pubsub.burials import Burials
from relay.dev.pubsub.dead_letters import dead_letter
from relay.dev.pubsub.filters import Filter, passes
from relay.dev.pubsub.settings import completed, policy_of, updated
from relay.dev.pubsub.status import AlreadyExistsError, NotFoundError
from relay.dev.pubsub.subscription import Policy, Subscription

DELETED_TOPIC = "_deleted-topic_"


class Catalog:
    """Topics and subscriptions by name: the state of the emulator, and the publishing into it."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._wall = wall
        self._topics: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._attached: dict[str, dict[str, Subscription]] = {}
        self.burials = Burials(clock)
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
        if settings.name in self._settings:
            raise AlreadyExistsError(f"the subscription {settings.name} exists already")
        policy = self._policy(completed(settings))
        bury = partial(self._bury, settings.name)
        subscription = Subscription(policy, self._clock, f"{uuid.uuid4().hex[:12]}-", bury)
        self._subscriptions[settings.name] = subscription
        self._attached[settings.topic][settings.name] = subscription
        self._describe(settings)
        return settings

    def update_subscription(self, request: Any) -> Any:
        """Change what an UpdateSubscriptionRequest names, for deliveries to come; return the description."""
        name = request.subscription.name
        settings = updated(self.settings(name), request)
        subscription = self._subscriptions[name]
        subscription.policy = self._policy(settings)
        self._describe(settings)
        subscription.notify()
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
        self.burials.discard(name)
        self._attached.get(topic, {}).pop(name, None)
        del self._subscriptions[name]

    def publish(self, request: Any, raw: bytes) -> list[str]:
        """Store the messages of a PublishRequest, parsed and as it came; return their ids, or refuse all."""
        self.topic(request.topic)
        self._rules.check_request(request.messages, len(raw))
        bodies = wire.messages_of(raw, request.messages)
        ordering_key = self._rules.check_messages(request.messages, bodies)
        return self._store(request.topic, request.messages, bodies, ordering_key)

    def _store(self, topic: str, messages: Sequence[Any], bodies: Sequence[bytes], ordering_key: str) -> list[str]:
        """Give messages to a topic's subscriptions, parsed and as serialised; return their ids."""
        now = wire.publish_time(self._wall())
        ids = [str(next(self._message_number)) for _ in bodies]
        stored = [b"".join((body, now, wire.message_id(number))) for body, number in zip(bodies, ids, strict=True)]
        for subscription in self._attached[topic].values():
            wanted = subscription.policy.filter
            chosen = stored if wanted is None else _chosen(wanted, messages, stored)
            if chosen:
                subscription.publish(chosen, ordering_key)
        return ids

    def _policy(self, settings: Any) -> Policy:
        """Return how a subscription delivers, if there is the topic that it buries to."""
        if settings.HasField("dead_letter_policy"):
            self.topic(settings.dead_letter_policy.dead_letter_topic)
        return policy_of(settings)

    def _describe(self, settings: Any) -> None:
        self._settings[settings.name] = settings
        if settings.HasField("dead_letter_policy"):
            self.burials.add(settings.name, self._subscriptions[settings.name])
        else:
            self.burials.discard(settings.name)

    def _bury(self, subscription: str, message: bytes, attempts: int) -> bool:
        """Publish a message to its subscription's dead-letter topic; whether there is one, still."""
        settings = self._settings.get(subscription)  # deleted, it may have a stream that still settles
        if settings is None or (topic := settings.dead_letter_policy.dead_letter_topic) not in self._topics:
            return False
        letter = dead_letter(message, subscription, attempts)
        self._store(topic, [letter], [letter.SerializeToString()], letter.ordering_key)
        return True

    def clear(self) -> None:
        """Forget everything, as a service of which nothing was kept; consumers are told."""
        for name, subscription in self._subscriptions.items():
            subscription.delete()
            self.burials.discard(name)
        for names in (self._topics, self._settings, self._subscriptions, self._attached):
            names.clear()

    def wake(self) -> None:
        """Let every waiting consumer look again: at a fault, at the end, at a clock that moved."""
        for subscription in self._subscriptions.values():
            subscription.notify()


def _chosen(wanted: Filter, messages: Sequence[Any], stored: Sequence[bytes]) -> Sequence[bytes]:
    """Return those stored messages that pass a filter; the others count as acknowledged."""
    return [body for message, body in zip(messages, stored, strict=True) if passes(wanted, message.attributes)]


def _of_project(project: str, names: dict[str, Any]) -> Iterator[str]:
    return (name for name in sorted(names) if name.startswith(f"{project}/"))
