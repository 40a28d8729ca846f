"""Brokers that a test holds in its hand."""

from collections.abc import Callable, Sequence

from relay.envelope import Message
from relay.testing import MemoryBroker


class BrokerInHand(MemoryBroker):
    """The public one, with a hook at each request: any error at all may be raised, and something happen meanwhile."""

    def __init__(self) -> None:
        super().__init__()
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
        answers = await super().publish(topic, messages, seconds)
        self.requests.append((topic, list(messages)))
        return answers

    def refusal(self, topic: str, messages: Sequence[Message]) -> Exception | None:
        """What the hooks say, or else what any broker would."""
        errors = (self.refuse(topic), *map(self.poisoned, messages))
        return next(filter(None, errors), None) or super().refusal(topic, messages)
