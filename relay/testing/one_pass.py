"""One pass of the real publisher over an outbox, with a broker in memory."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, overload

from relay.envelope import topic_fault
from relay.errors import BrokerError
from relay.failed_head import FailedHead
from relay.kernel.backoff import Delay, Retry
from relay.kernel.runner import Budget
from relay.outbox import schema
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.events import RowFailed, RowRetried, TopicOpened
from relay.publisher.failures import Attempts
from relay.publisher.policy import PublishPolicy
from relay.publisher.publisher import Publisher
from relay.routes import Routes
from relay.testing.broker import MemoryBroker, RelayedMessage

_IDLE_TX_MS = 20_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Relayed(Sequence[RelayedMessage]):
    """The messages that were published in one pass, in their order; and what became of events that were not."""

    messages: tuple[RelayedMessage, ...]
    retried: int = 0
    """Events that paid with an attempt, and wait for the next one."""
    failed: int = 0
    """Events that failed for good."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Topics that took nothing, with the code of the broker; their events wait and pay nothing."""

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, place: int) -> RelayedMessage: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[RelayedMessage, ...]: ...
    def __getitem__(self, place: int | slice) -> RelayedMessage | tuple[RelayedMessage, ...]:
        return self.messages[place]

    def __iter__(self) -> Iterator[RelayedMessage]:
        return iter(self.messages)


def policy(routes: Mapping[str, str] | str, topic: str, max_attempts: int, on_failed_head: str) -> PublishPolicy:
    """The product's own policy with these settings, without jitter. Raises ValueError for what the relay refuses."""
    if fault := topic_fault(topic):
        raise ValueError(f"topic {topic!r} {fault}")
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}; give one or more")
    text = routes if isinstance(routes, str) else ",".join(f"{pattern}={name}" for pattern, name in routes.items())
    return PublishPolicy(
        routes=_read("routes", lambda: Routes.parse(text, topic)),
        batch_size=1_000,
        slots=1,
        publish_seconds=15.0,
        attempts=Attempts(max_attempts, Retry(5, 120, 0)),
        poll=Delay(0.5, 0.5, 0),
        outage=Delay(0.5, 10, 0),
        failed_head=_read("on_failed_head", lambda: FailedHead.parse(on_failed_head)),
    )


async def one_pass(  # noqa: PLR0913 -- where, over what, and when
    url: str, schema_name: str, broker: MemoryBroker, publish: PublishPolicy, *, later: float, seconds: float
) -> Relayed:
    """Publish all that can be published, as a relay that has just started, and so many seconds `later` than now."""
    await _require_schema(url, schema_name)
    seen: list[object] = []
    outbox = Outbox(lambda: connect_async(url), schema_name, _IDLE_TX_MS, skew=later)
    publisher = Publisher(outbox, broker, publish, seen.append)
    before, broker.fault = len(broker.messages), None
    try:
        await publisher.run_once(Budget(time.monotonic() + seconds, time.monotonic, asyncio.Event()))
    finally:
        await publisher.close()
    if broker.fault:
        raise broker.fault
    return Relayed(
        messages=tuple(broker.messages[before:]),
        retried=sum(isinstance(event, RowRetried) for event in seen),
        failed=sum(isinstance(event, RowFailed) for event in seen),
        away={event.topic: _code(event.error) for event in seen if isinstance(event, TopicOpened)},
    )


async def _require_schema(url: str, name: str) -> None:
    connection = await connect_async(url)
    async with connection:
        await schema.require(connection, name)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, BrokerError) else type(error).__name__


def _read(name: str, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
