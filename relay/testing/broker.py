"""A broker in memory: it keeps what it takes, and refuses what the test says."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.brokers.broker import RequestLimits
from relay.envelope import Message
from relay.errors import BrokerError

# What a Pub/Sub service answers with.
CODES = frozenset(
    {
        "ABORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
        "DATA_LOSS",
        "DEADLINE_EXCEEDED",
        "FAILED_PRECONDITION",
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNAVAILABLE",
        "UNIMPLEMENTED",
        "UNKNOWN",
    }
)
# One request of the service, all included.
_REQUEST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class RelayedMessage:
    """A message as a broker has it."""

    topic: str
    message_id: str
    body: bytes
    attributes: Mapping[str, str]
    ordering_key: str = ""

    @property
    def envelope(self) -> Any:
        """What JSON makes of the body: event_id, event_type, version, occurred_at, actor and data."""
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The event's own."""
        return self.envelope["data"]

    @property
    def event_id(self) -> str:
        """As the attributes have it."""
        return self.attributes.get("event_id", "")

    @property
    def event_type(self) -> str:
        """As the attributes have it."""
        return self.attributes.get("event_type", "")


Poison = Callable[[RelayedMessage], bool]


class MemoryBroker:
    """Takes everything, unless told otherwise, and keeps it in the order in which it came.

    With `topics`, no others exist: what goes elsewhere is refused with NOT_FOUND, as a Pub/Sub service does.
    """

    limits = RequestLimits(messages=1_000, size_bytes=9_000_000)

    def __init__(self, topics: Iterable[str] | None = None) -> None:
        self.messages: list[RelayedMessage] = []
        """What was taken, the oldest first."""
        self.fault: Exception | None = None
        """What a predicate of `poison` raised: a fault of the test, which no row should pay for."""
        self._topics = None if topics is None else frozenset(topics)
        self._taken = 0
        self.recover()

    def on(self, topic: str) -> list[RelayedMessage]:
        """What a topic took, the oldest first."""
        return [message for message in self.messages if message.topic == topic]

    @property
    def event_ids(self) -> list[str]:
        """Of all that was taken, the oldest first."""
        return [message.event_id for message in self.messages]

    def fail(self, code: str = "UNAVAILABLE", *, topic: str | None = None) -> None:
        """Refuse every request, or every one to a topic, until `recover`."""
        self._outages[topic] = _known(code)

    def poison(self, is_poison: Poison, code: str = "INVALID_ARGUMENT") -> None:
        """Refuse every request that has such a message in it, until `recover`."""
        self._poisons.append((is_poison, _known(code)))

    def slow(self, seconds: float) -> None:
        """Take so long to answer, in real time, until `recover`; who grants less gets DEADLINE_EXCEEDED then."""
        if not seconds >= 0:
            raise ValueError(f"{seconds!r} is no time to wait; give seconds, zero or more")
        self._seconds = seconds

    def recover(self) -> None:
        """Take everything again, at once."""
        self._outages: dict[str | None, str] = {}
        self._poisons: list[tuple[Poison, str]] = []
        self._seconds = 0.0

    def clear(self) -> None:
        """Forget what was taken; the numbers of messages go on."""
        self.messages.clear()

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        """Keep the messages, all or none of them."""
        if self._seconds:
            await asyncio.sleep(min(self._seconds, seconds))
        if self._seconds > seconds:
            raise BrokerError("DEADLINE_EXCEEDED", f"no answer within {seconds:g} s")
        if error := self.refusal(topic, messages):
            raise error
        first = self._taken + 1
        self._taken += len(messages)
        ids = [f"m{number}" for number in range(first, self._taken + 1)]
        self.messages += [_relayed(topic, *pair) for pair in zip(ids, messages, strict=True)]
        return ids

    async def close(self) -> None:
        """Nothing to let go of."""

    def refusal(self, topic: str, messages: Sequence[Message]) -> Exception | None:
        """Why a request is not taken."""
        if self._topics is not None and topic not in self._topics:
            return BrokerError(
                "NOT_FOUND", f"there is no topic {topic!r}; there are: {', '.join(sorted(self._topics))}"
            )
        for away in (None, topic):
            if away in self._outages:
                return BrokerError(self._outages[away], "refused, as the test has it")
        if unfit := _unfit(messages):
            return BrokerError("INVALID_ARGUMENT", unfit)
        return self._poisoned(topic, messages)

    def _poisoned(self, topic: str, messages: Sequence[Message]) -> Exception | None:
        for is_poison, code in self._poisons:
            for message in messages:
                try:
                    found = is_poison(_relayed(topic, "", message))
                except Exception as error:  # the predicate is the test's own
                    self.fault = error
                    raise
                if found:
                    return BrokerError(code, "poisoned, as the test has it")
        return None


def _relayed(topic: str, message_id: str, message: Message) -> RelayedMessage:
    return RelayedMessage(topic, message_id, message.body, dict(message.attributes), message.ordering_key)


def _known(code: str) -> str:
    if code not in CODES:
        raise ValueError(f"{code!r} is no code of a broker's; choose from: {', '.join(sorted(CODES))}")
    return code


def _unfit(messages: Sequence[Message]) -> str | None:
    """What a Pub/Sub service would not take, in words."""
    if not 1 <= len(messages) <= MemoryBroker.limits.messages:
        return f"a request of {len(messages)} messages; 1 to {MemoryBroker.limits.messages} are allowed"
    if sum(len(message.body) for message in messages) > _REQUEST_BYTES:
        return f"a request of more than {_REQUEST_BYTES} bytes"
    if len({message.ordering_key for message in messages}) > 1:
        return "messages of different ordering keys in one request"
    if not all(message.body or message.attributes for message in messages):
        return "a message with neither data nor attributes"
    return None
