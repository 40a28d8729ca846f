"""Brokers that a test holds in its hand."""

from collections.abc import Callable, Sequence

from relay.brokers.broker import RequestLimits
from relay.envelope import Message


class BrokerInHand:
    """Takes everything, unless told otherwise."""

    limits = RequestLimits(messages=1_000, size_bytes=9_000_000)

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[Message]]] = []
        self.asked: list[tuple[str, int]] = []  # every request, taken or not: its topic, how many messages
        self.refuse: Callable[[str], Exception | None] = lambda _: None
        self.poisoned: Callable[[Message], Exception | None] = lambda _: None
        self.meanwhile: Callable[[], None] = lambda: None

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Keep the messages."""
        assert seconds > 0
        self.meanwhile()
        self.asked.append((topic, len(messages)))
        errors = (self.refuse(topic), *map(self.poisoned, messages))
        if error := next(filter(None, errors), None):
            raise error
        self.requests.append((topic, list(messages)))
        return [f"m{number}" for number, _ in enumerate(messages)]

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def event_ids(self) -> list[str]:
        """What was taken, in order."""
        return [message.attributes["event_id"] for _, messages in self.requests for message in messages]
