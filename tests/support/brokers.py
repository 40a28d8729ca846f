"""Brokers that a test holds in its hand."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from relay.envelope import Message
from relay.testing import MemoryBroker

OURS, GOOGLE, MEMORY = "ours", "google", "memory"
ON_GOOGLE = pytest.param(
    GOOGLE,
    marks=[
        pytest.mark.slow("Google's emulator takes seconds to start, and to each test"),
        pytest.mark.xdist_group(GOOGLE),  # in one process: each would start a virtual machine of Java of its own
    ],
)


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


class MemoryService:
    """A broker in memory, seen as a service with topics and subscriptions, as far as the contract of brokers asks."""

    name = "memory"
    topics = tuple(f"projects/contract/topics/t-{number}" for number in range(10))

    def __init__(self) -> None:
        self.broker = MemoryBroker(self.topics)
        self._unused = list(self.topics)
        self._read: dict[str, int] = {}

    async def topic(self) -> str:
        """One that nobody has used."""
        return self._unused.pop(0)

    async def subscription(self, topic: str, **_: Any) -> str:
        """It gets what the topic takes from now on, under the topic's name."""
        self._read[topic] = len(self.broker.on(topic))
        return topic

    async def pull(self, subscription: str, wanted: int) -> list[Any]:
        """So many messages, as a service has them."""
        first = self._read[subscription]
        self._read[subscription] += wanted
        return [
            SimpleNamespace(
                message=SimpleNamespace(
                    message_id=kept.message_id,
                    data=kept.body,
                    attributes=kept.attributes,
                    ordering_key=kept.ordering_key,
                )
            )
            for kept in self.broker.on(subscription)[first : first + wanted]
        ]

    async def pull_now(self, subscription: str) -> list[Any]:
        """All that there is."""
        return await self.pull(subscription, len(self.broker.messages))
