"""Messages go to their topics, each topic's share for itself, and what the broker does to them is learned from."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from relay.brokers.broker import Broker
from relay.kernel.observe import Observe
from relay.outbox.batch import Batch
from relay.outbox.rows import Claimed
from relay.publisher.circuits import Circuits
from relay.publisher.delivered import Delivered
from relay.publisher.delivery import Delivery, Reserve
from relay.publisher.events import TopicOpened
from relay.publisher.message import Sendable
from relay.publisher.outcome import build
from relay.publisher.policy import PublishPolicy
from relay.publisher.suspects import Suspects

# A probe takes no longer than so many requests that hang, with some that do not.
REQUESTS_IN_PROBE = 2.1
# Where nothing of a batch is taken, so many of the topic's newest rows, of at most so many bytes, may be asked for.
CONTROLS = 50
CONTROL_BYTES = 100_000
# So many times a thousand keys are looked at for one, where no row without a key is there.
LOOKS_FOR_CONTROLS = 5

ByTopic = dict[str, list[Sendable]]


class Sender:
    """Sends the shares of all topics side by side."""

    def __init__(self, broker: Broker, policy: PublishPolicy, circuits: Circuits, observe: Observe) -> None:
        self._broker = broker
        self._policy = policy
        self._circuits = circuits
        self._observe = observe
        self._suspects = Suspects(policy.batch_size)

    async def send(self, batch: Batch, by_topic: ByTopic, monotonic: Callable[[], float]) -> Sequence[Delivered]:
        """Send a batch; circuits open for topics that take nothing."""
        deadline = monotonic() + self._policy.publish_seconds
        cuts = {topic: self._suspects.cut(topic, rows, self._broker.limits) for topic, rows in by_topic.items()}
        delivered = await _all(
            [
                self._delivery(topic, monotonic, deadline, self._reserve(batch, topic, by_topic)).send(
                    cut.requests, cut.lanes
                )
                for topic, cut in cuts.items()
            ]
        )
        for topic in delivered:
            cut = cuts[topic.topic]
            self._suspects.learn(topic, cut)
            self._open_or_well(topic, cut.rows, monotonic())
        return delivered

    async def probe(self, by_topic: ByTopic, monotonic: Callable[[], float]) -> Sequence[Delivered]:
        """Ask topics, side by side, whether they take one of these rows."""
        deadline = monotonic() + REQUESTS_IN_PROBE * self._policy.request_seconds
        return await _all(
            [self._delivery(topic, monotonic, deadline, _no_more).probe(rows) for topic, rows in by_topic.items()]
        )

    def forget(self, topic: str) -> None:
        """The topic has no rows left."""
        self._suspects.forget(topic)

    def _reserve(self, batch: Batch, topic: str, sent: ByTopic) -> Reserve:
        """Claims rows of the topic that a batch left behind, when one is asked for as a control.

        They are its newest without a key, or else the first ones of further keys.
        """

        async def reserve() -> list[Sendable]:
            types = tuple(types_of(sent[topic]))
            beyond = max((row.id for rows in sent.values() for row in _without_key(rows)), default=0)
            claimed = await batch.controls(topic, types, beyond, CONTROLS, CONTROL_BYTES)
            after = ""
            for _ in range(0 if claimed else LOOKS_FOR_CONTROLS):
                heads = await batch.heads(topic, types, after, CONTROLS, CONTROL_BYTES)
                claimed, after = heads.rows, heads.after
                if claimed or not after:
                    break
            return build(claimed, self._policy.routes, self._policy.failed_head).by_topic.get(topic, [])

        return reserve

    def _delivery(self, topic: str, monotonic: Callable[[], float], deadline: float, reserve: Reserve) -> Delivery:
        return Delivery(topic, self._broker, monotonic, self._policy.request_seconds, deadline, self._observe, reserve)

    def _open_or_well(self, delivered: Delivered, rows: Sequence[Sendable], now: float) -> None:
        topic = delivered.topic
        if delivered.outage is None:
            self._circuits.well(topic)
        elif self._circuits.is_open(topic):  # by another batch, meanwhile
            self._circuits.learn(topic, types_of(rows))
        else:
            self._observe(TopicOpened(topic, delivered.outage, self._circuits.open(topic, types_of(rows), now)))


async def _all(shares: Sequence[Coroutine[Any, Any, Delivered]]) -> Sequence[Delivered]:
    """What became of the shares of all topics, which go out side by side. One alone begins at once, without a task."""
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(share) for share in shares[1:]]
        return [await share for share in (*shares[:1], *others)]


async def _no_more() -> list[Sendable]:
    """A probe asks for no other rows than its own."""
    return []


def types_of(rows: Iterable[Sendable]) -> set[str]:
    """The types of events that go where they go by their type, and not because their row says so."""
    return {row.event_type for row, _ in rows if row.topic is None}


def _without_key(rows: Iterable[Sendable]) -> Iterator[Claimed]:
    return (row for row, _ in rows if row.ordering_key is None)
