"""`relay topics`: how many questions are open at once, and for how long."""

import asyncio
from typing import Self

import pytest

from relay.brokers.pubsub_client import PubSubAddress
from relay.brokers.pubsub_topics import TopicState
from relay.cli import topics
from relay.errors import BrokerError

NAMES = [f"projects/p/topics/topic-{number}" for number in range(40)]
SILENT = NAMES[3]


class Service:
    """Answers in rounds: when as many are asked as may be, or as are left, all of them are answered."""

    def __init__(self) -> None:
        self.open = self.most = self.asked = 0
        self._full = asyncio.Event()

    async def look(self, _name: str, _seconds: float) -> TopicState:
        """Wait for the others of this round."""
        self.asked += 1
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == topics.AT_ONCE or self.asked == len(NAMES):
            self._full.set()
        await self._full.wait()
        self.open -= 1
        return TopicState.EXISTS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""


class Silent(Service):
    """Never answers for one topic; the time is up as soon as it has answered for all others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.bound: float | None = None
        self._limit = asyncio.timeout(None)
        self._answered = 0
        monkeypatch.setattr(asyncio, "timeout", self._begin)

    def _begin(self, seconds: float | None) -> asyncio.Timeout:
        self.bound = seconds
        return self._limit

    async def look(self, name: str, _seconds: float) -> TopicState:
        """Answer, or end the time."""
        if name == SILENT:
            await asyncio.Event().wait()
        self._answered += 1
        if self._answered == len(NAMES) - 1:
            self._limit.reschedule(asyncio.get_running_loop().time())
        return TopicState.EXISTS


async def answers(monkeypatch: pytest.MonkeyPatch, service: Service) -> topics.Answers:
    """What is known of all topics in the end."""
    monkeypatch.setattr(topics, "PubSubTopics", lambda _: service)
    named = topics.Named({name: [topics.By.SETTINGS] for name in NAMES}, "p", pending=False)
    return await topics._answers(PubSubAddress("p"), named, "plan")


async def test_topics_are_asked_together_and_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers stand in the order of the names."""
    service = Service()
    known = await answers(monkeypatch, service)
    assert list(known.items()) == [(name, TopicState.EXISTS) for name in NAMES]
    assert service.most == topics.AT_ONCE


async def test_what_is_not_answered_in_time_is_told_and_the_rest_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that says nothing does not hold up a deployment."""
    service = Silent(monkeypatch)
    known = await answers(monkeypatch, service)
    late = known[SILENT]
    assert isinstance(late, BrokerError)
    assert str(late) == "DEADLINE_EXCEEDED: nothing is known after 60 s; run the command again"
    assert service.bound == topics.ALL_SECONDS
    assert [name for name, answer in known.items() if answer is TopicState.EXISTS] == [
        name for name in NAMES if name != SILENT
    ]
