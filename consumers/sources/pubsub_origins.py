"""Which topic of Google Pub/Sub a dead letter came from."""

import asyncio

from consumers.dead_letter import DeadLetter
from consumers.replay import UnknownTopicError
from relay.brokers.pubsub_subscriptions import PubSubSubscriptions

_SECONDS = 10.0


class PubSubOrigins:
    """Asks the subscription on which the event was received; `to` goes over what it says."""

    def __init__(self, subscriptions: PubSubSubscriptions, to: str | None = None) -> None:
        self._subscriptions = subscriptions
        self._to = to
        self._known: dict[str, str] = {}
        self._asking = asyncio.Lock()

    async def of(self, letter: DeadLetter) -> str:
        """The topic's name. Raises UnknownTopicError where nobody can tell it, BrokerError where Pub/Sub is away."""
        if self._to:
            return self._to
        if not letter.subscription:
            raise UnknownTopicError("it does not say on which subscription it was received; name the topic with --to")
        async with self._asking:
            if letter.subscription not in self._known:
                self._known[letter.subscription] = await self._ask(letter.subscription)
        return self._known[letter.subscription]

    async def _ask(self, subscription: str) -> str:
        found = await self._subscriptions.look(subscription, _SECONDS)
        if found is None:
            raise UnknownTopicError(
                f"its subscription {subscription} does not exist any more; name the topic that it came from with --to"
            )
        if found.topic is None:
            raise UnknownTopicError(
                f"the topic of its subscription {subscription} was deleted; name the one to publish it to with --to"
            )
        return found.topic
