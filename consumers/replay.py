"""Dead letters on their way back to the consumer that could not act on them.

what is done, in this order                        killed before it, the next run finds
─────────────────────────────────────────────────  ─────────────────────────────────────────────────────────
the subscription is read to its end, and held      all of it again, a minute later at most
the consumer's store forgets the dead letter       the same
the message is published where it came from        an event that is new to the store: the same
the broker's answer is waited for                  the same; perhaps it is published twice, and recognised
the dead letter is acknowledged                    the same

What was published twice is acted on once: the consumer recognises it, and the store forgets what dead letters have
completed, never what had its effect, in one step that nothing comes between (`forgetting`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from consumers.dead_letter import UNDECODABLE, Choice, DeadLetter
from consumers.forgetting import Memory
from consumers.spool import Place, Spool
from idempotency import IdempotencyError, StoreUnavailableError
from relay.brokers.broker import Broker
from relay.brokers.pubsub_reader import Received
from relay.envelope import Message
from relay.errors import BrokerError, RelayError

AT_ONCE = 20
SECONDS = 15.0
# So many in a row that fail of what is no message's fault, and the rest would fail as well.
_HOPELESS = 20
_NOBODYS_FAULT = frozenset({"DEADLINE_EXCEEDED", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNAVAILABLE"})


class UnknownTopicError(RelayError):
    """Nobody can tell where the message came from."""


class Box(Protocol):
    """A subscription with dead letters."""

    def read(self) -> AsyncGenerator[Received, None]:
        """Every message, once, until there is no further one."""
        ...

    async def take(self, message_id: str) -> None:
        """Acknowledge a message."""
        ...


class Topics(Protocol):
    """Where the consumers' subscriptions lead."""

    async def of(self, letter: DeadLetter) -> str:
        """The topic that the event came from. Raises UnknownTopicError, BrokerError."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """The broker has it again."""

    letter: DeadLetter
    topic: str
    message_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It stays a dead letter, or, where `topic` is named, was published and could not be acknowledged as one."""

    letter: DeadLetter
    error: Exception
    topic: str = ""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """It stays a dead letter: one before it in the order of its key does, or all that were tried had failed."""

    letter: DeadLetter
    behind: DeadLetter | None


End = Replayed | Failed | HeldBack


@dataclass(slots=True)
class Tally:
    """How it went."""

    replayed: int = 0
    failed: int = 0
    held_back: int = 0
    passed_over: int = 0
    """Read, and not meant."""
    beyond_limit: int = 0
    """Meant, and more than were asked for."""
    topics: set[str] = field(default_factory=set)

    def count(self, end: End) -> None:
        """One more."""
        match end:
            case Replayed(_, topic, _):
                self.replayed += 1
                self.topics.add(topic)
            case Failed():
                self.failed += 1
            case HeldBack():
                self.held_back += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a replay works with."""

    box: Box
    broker: Broker
    topics: Topics
    memory: Memory
    tell: Callable[[End], None]
    progress: Callable[[str, int], None] = lambda _what, _count: None


async def replay(means: Means, choice: Choice, limit: int | None = None) -> Tally:
    """Replay the dead letters that are chosen; with a limit, those whose events were stored first.

    A message that fails is told of, and the others go on, except those behind it in the order of its key. Raises
    BrokerError where the subscription cannot be read.
    """
    tally = Tally()
    with Spool() as spool:
        chosen = _Chosen(spool, limit)
        async with aclosing(means.box.read()) as messages:
            async for message in messages:
                letter = DeadLetter.read(message.message_id, message.attributes, message.body)
                if choice.replays(letter):
                    chosen.add(letter, message.body)
                else:
                    tally.passed_over += 1
                means.progress("dead letters read", chosen.offered + tally.passed_over)
        waiting = chosen.in_order()
        tally.beyond_limit = chosen.offered - len(waiting)
        await _Run(means, spool, tally).all(_lanes(waiting))
    return tally


@dataclass(frozen=True, slots=True)
class _Waiting:
    letter: DeadLetter
    body: Place


class _Chosen:
    """Those that are meant, with a limit the first of them in order; their bodies are elsewhere."""

    def __init__(self, spool: Spool, limit: int | None) -> None:
        self._spool = spool
        self._limit = limit
        self._waiting: list[_Waiting] = []
        self._last: DeadLetter | None = None
        self.offered = 0

    def add(self, letter: DeadLetter, body: bytes) -> None:
        self.offered += 1
        if self._last is not None and letter.in_order >= self._last.in_order:
            return
        self._waiting.append(_Waiting(letter, self._spool.put(body)))
        if self._limit is not None and len(self._waiting) >= 2 * self._limit:
            self._last = self.in_order()[-1].letter

    def in_order(self) -> list[_Waiting]:
        self._waiting.sort(key=lambda each: each.letter.in_order)
        if self._limit is not None:
            del self._waiting[self._limit :]
        return self._waiting


def _lanes(waiting: Iterable[_Waiting]) -> list[list[_Waiting]]:
    """What has to go out one after the other: of a key, in order; else each event, which may have several letters."""
    lanes: dict[tuple[str, ...], list[_Waiting]] = {}
    for each in waiting:
        letter = each.letter
        lane = (
            ("key", letter.consumer, letter.ordering_key)
            if letter.ordering_key
            else ("event", letter.consumer, letter.event_id)
            if letter.event_id
            else ("message", letter.message_id)
        )
        lanes.setdefault(lane, []).append(each)
    return list(lanes.values())


class _Run:
    """Replays lanes side by side, until all are through or hope is gone."""

    def __init__(self, means: Means, spool: Spool, tally: Tally) -> None:
        self._means = means
        self._spool = spool
        self._tally = tally
        self._in_vain = 0

    async def all(self, lanes: Sequence[Sequence[_Waiting]]) -> None:
        following = iter(lanes)

        async def work() -> None:
            for lane in following:
                await self._lane(lane)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(AT_ONCE, len(lanes))):
                workers.create_task(work())

    async def _lane(self, lane: Iterable[_Waiting]) -> None:
        failed: DeadLetter | None = None
        for each in lane:
            if failed is not None or self._in_vain >= _HOPELESS:
                self._end(HeldBack(each.letter, failed))
                continue
            end = await self._one(each)
            # What was published is no gap in the order, whatever became of its dead letter; without a key is no order.
            if isinstance(end, Failed) and not end.topic and each.letter.ordering_key:
                failed = each.letter
            self._end(end)

    async def _one(self, waiting: _Waiting) -> End:
        means, letter, topic = self._means, waiting.letter, ""
        try:
            target = await means.topics.of(letter)
            if (event := _known_to_a_store(letter)) is not None:
                await means.memory.forget(letter.consumer, event)
            body = self._spool.get(waiting.body)
            message = Message(body, letter.to_publish, len(body), letter.ordering_key)
            (message_id,) = await means.broker.publish(target, [message], SECONDS)
            topic = target
            await means.box.take(letter.message_id)
        except (RelayError, IdempotencyError) as error:
            return Failed(letter, error, topic)
        return Replayed(letter, topic, message_id)

    def _end(self, end: End) -> None:
        if isinstance(end, Failed) and _is_nobodys_fault(end.error):
            self._in_vain += 1
        elif isinstance(end, Replayed):
            self._in_vain = 0
        self._tally.count(end)
        self._means.tell(end)
        self._means.progress("dead letters replayed", self._tally.replayed)


def _known_to_a_store(letter: DeadLetter) -> UUID | None:
    """The event by which the consumer deduplicates; what it could not decode, it does not know."""
    if not letter.consumer or letter.code == UNDECODABLE:
        return None
    try:
        return UUID(letter.event_id)
    except ValueError:
        return None


def _is_nobodys_fault(error: Exception) -> bool:
    return isinstance(error, StoreUnavailableError) or (isinstance(error, BrokerError) and error.code in _NOBODYS_FAULT)
