"""A dead-letter topic with the subscription that keeps what is sent there: without one it would keep nothing."""

from dataclasses import dataclass
from datetime import timedelta

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_subscriptions import PubSubSubscriptions, Subscribed
from relay.brokers.pubsub_topics import PubSubTopics, TopicState
from relay.kernel.duration import written

_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Ensured:
    """What is there now."""

    topic: str
    topic_created: bool
    subscription: Subscribed
    wanted: timedelta

    @property
    def fault(self) -> str | None:
        """Why dead letters would not be kept all the same, or None."""
        found = self.subscription
        if found.topic == self.topic:
            return None
        reads = f"reads {found.topic}" if found.topic else "has lost its topic, which was deleted"
        return (
            f"the subscription {found.name} {reads}, so nothing of {self.topic} arrives on it: replay what it holds, "
            f"delete it (gcloud pubsub subscriptions delete {found.name}), and run this again"
        )

    @property
    def notes(self) -> list[str]:
        """How a subscription that was there differs from the one that would have been created."""
        found, notes = self.subscription, []
        change = f"gcloud pubsub subscriptions update {found.name}"
        if found.retention != self.wanted:
            notes.append(
                f"the subscription {found.name} was there, and keeps messages {written(found.retention)}, not "
                f"{written(self.wanted)}; change it with: {change} "
                f"--message-retention-duration={self.wanted // timedelta(seconds=1)}s"
            )
        if found.expires is not None:
            notes.append(
                f"the subscription {found.name} is deleted, with all that it keeps, when nobody reads it for "
                f"{written(found.expires)}; change it with: {change} --expiration-period=never"
            )
        return notes


async def ensure(address: PubSubAddress, topic: str, retention: timedelta) -> Ensured:
    """Create the topic, and a subscription of the same name, unless they are there. Raises BrokerError."""
    name = address.topic(topic)
    async with PubSubTopics(address) as topics:
        state = await topics.ensure(name, _SECONDS)
    async with PubSubSubscriptions(address) as subscriptions:
        found = await subscriptions.ensure(name.rpartition("/")[2], name, retention, _SECONDS)
    return Ensured(name, state is TopicState.CREATED, found, retention)
