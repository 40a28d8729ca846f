"""Topics that take nothing are asked again, a row or three at a time, while batches of others go on."""

from collections.abc import Callable, Sequence

from relay.kernel.observe import Observe
from relay.kernel.runner import Report
from relay.outbox.outbox import Outbox
from relay.outbox.rows import Candidates
from relay.publisher.circuits import Circuits
from relay.publisher.delivered import Delivered
from relay.publisher.events import TopicClosed, TopicProbed
from relay.publisher.message import Sendable
from relay.publisher.outcome import build, judge, settle
from relay.publisher.policy import PublishPolicy
from relay.publisher.sender import Sender

# So many open topics are asked side by side.
PROBES_AT_ONCE = 20
# Looking for rows, and in vain, may cost this share of the time at most.
FRUITLESS_SHARE = 1 / 20


class Probes:
    """Asks open topics whether they take one of their rows."""

    def __init__(
        self, outbox: Outbox, policy: PublishPolicy, circuits: Circuits, sender: Sender, observe: Observe
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._circuits = circuits
        self._sender = sender
        self._observe = observe

    def due(self, now: float) -> Sequence[str]:
        """The topics to be asked next."""
        return self._circuits.due(now)[:PROBES_AT_ONCE]

    async def ask(self, topics: Sequence[str], monotonic: Callable[[], float]) -> Report:
        """Ask topics side by side; their circuits close, or wait for another time."""
        began = monotonic()
        found: dict[str, Candidates] = {}
        self._circuits.asking(topics)
        try:
            async with self._outbox.batch() as batch:
                async with batch.turn:
                    for topic in topics:
                        found[topic] = await batch.candidates(
                            topic,
                            self._circuits.types(topic),
                            self._circuits.place(topic),
                            keys_first=self._circuits.looks(topic) % 2 == 1,
                        )
                look = monotonic() - began
                rows = [row for candidates in found.values() for row in candidates.rows]
                built = build(rows, self._policy.routes, self._policy.failed_head)
                asked = {
                    topic: self._in_turn(topic, sendable)
                    for topic, sendable in built.by_topic.items()
                    if self._circuits.is_open(topic)
                }
                delivered = await self._sender.probe(asked, monotonic)
                outcome = judge(rows, built, delivered, self._policy.attempts, self._policy.failed_head)
                await settle(batch, outcome, self._policy.said)
        except BaseException:  # a cancellation, too: others have their turn before it is tried again
            for topic in topics:
                self._circuits.not_asked(topic, monotonic())
            raise
        for event in outcome.events(monotonic() - began):
            self._observe(event)
        results = {topic.topic: topic for topic in delivered}
        for topic in topics:
            result = results.get(topic, Delivered(topic))
            # However long a lock was waited for.
            at_least = min(look / FRUITLESS_SHARE, self._policy.outage.most)
            self._conclude(topic, found[topic], result, monotonic(), at_least)
        return outcome.report

    def _in_turn(self, topic: str, rows: Sequence[Sendable]) -> list[Sendable]:
        """Suspects first, so that others are their control; each has its turn to be the first, in case it hangs."""
        ordered = sorted(rows, key=lambda pair: not pair[0].attempt_count)
        first = self._circuits.probes(topic) % len(ordered)
        return ordered[first:] + ordered[:first]

    def _conclude(self, topic: str, found: Candidates, delivered: Delivered, now: float, at_least: float) -> None:
        errors = [guilty.error for guilty in delivered.guilty]
        error = delivered.outage or next(iter(errors), None)
        if delivered.accepted or not found.seen:
            if not found.seen:
                self._sender.forget(topic)
            probes, seconds = self._circuits.close(topic, now)
            self._observe(TopicClosed(topic, probes, seconds, taken=bool(delivered.accepted)))
        elif error is None:
            self._circuits.not_asked(topic, now, at_least, found.last)
        else:
            probes, wait = self._circuits.in_vain(topic, found.last, now, at_least)
            self._observe(TopicProbed(topic, error, probes, wait))
