"""Topics that the broker refused lately are left alone for a while: each for itself, longer with every refusal."""

from dataclasses import replace

from relay.kernel.backoff import Backoff, Delay


class Rests:
    """Which topics rest, and until when. What a topic takes ends its series of delays."""

    def __init__(self, delay: Delay) -> None:
        # Without jitter: a rest is over when the loop, which adds its own, comes back from the same delay.
        self._delay = replace(delay, jitter=0)
        self._backoffs: dict[str, Backoff] = {}
        self._until: dict[str, float] = {}

    def resting(self, topic: str, now: float) -> bool:
        """Whether the topic is to be left alone."""
        return now < self._until.get(topic, now)

    def refused(self, topic: str, now: float) -> None:
        """The broker did not take something for this topic."""
        backoff = self._backoffs.setdefault(topic, Backoff(self._delay))
        self._until[topic] = now + backoff.next()

    def taken(self, topic: str) -> None:
        """The broker took all that was sent to this topic."""
        self._backoffs.pop(topic, None)
        self._until.pop(topic, None)
