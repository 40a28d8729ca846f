"""Deduplication by the inbox: what it hands over is claimed already, and every word about it is a row's."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from consumers.dedup.keeper import LOST, Keeper, Renewed
from consumers.dedup.protocol import Begun, End, InProgress, Mode, OnLost, UnkeepableError
from consumers.delivery import Delivery
from consumers.events import Heartbeat, HeartbeatFailed
from consumers.gather import Gather
from consumers.inbox import rows
from consumers.inbox.notebook import Notebooks
from consumers.inbox.rows import Owned, Word
from consumers.inbox.session import UNKEPT
from consumers.inbox.table import MOST_ROWS, Table
from consumers.inbox.words import again, end_of, unbegun
from consumers.outcome import Defer, Invalid, Retry
from consumers.received import Received
from idempotency import LeaseLostError, StoreUnavailableError
from relay.kernel.clock import Clock
from relay.kernel.observe import Observe

# The revision of the handler that is for events of this type and version; None where there is none.
RevisionOf = Callable[[str, int, str], int | None]

# How long a row is left to whoever holds it before it is asked for again, in seconds.
_HELD_PAUSE: Final = 0.25


class Inbox:
    """Acts on rows that the source has claimed. Its words travel together, many in one statement."""

    mode = Mode.INBOX
    durable = True

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        table: Table,
        clock: Clock,
        observe: Observe,
        *,
        revision_of: RevisionOf,
        heartbeat_seconds: float,
        confirmed_in: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self._table = table
        self._revision_of = revision_of
        self._clock = clock
        self._observe = observe
        self._confirmed_in = confirmed_in
        self._never = asyncio.Event()
        self._on_lost: OnLost = lambda _: None
        self._loop: asyncio.AbstractEventLoop
        self._begun: dict[Owned, Begun] = {}
        self._keeper: Keeper[Owned] = Keeper(self._renew, clock, every=heartbeat_seconds, now=clock.monotonic)
        self._notebooks = Notebooks(table)
        self._words: Gather[Word, str] = Gather(self._settle, most=MOST_ROWS, at_once=1)
        self.also_given_up: list[Callable[[Exception], None]] = []
        """Who else asks the inbox on the road of a delivery."""
        self._giving_back: set[asyncio.Task[None]] = set()

    @property
    def leases(self) -> int:
        """Rows that are kept now."""
        return len(self._keeper)

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:  # noqa: ARG002 -- rows stay until they are done
        """Begin to keep what is claimed."""
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._keeper.start(self._lose)
        return []

    def hold(self, owned: Owned) -> None:
        """Keep a row that was claimed, from now on."""
        self._keeper.keep(owned, owned.deadline)

    async def begin(self, event: Received[Any], delivery: Delivery) -> Begun | InProgress:
        """It is ours already, unless its lease has ended while it waited."""
        owned: Owned = delivery.handle
        # A process that stood still learns of that here before anybody has told it.
        if owned.over or owned.deadline <= self._clock.monotonic():
            return InProgress(0.0)
        owned.revision = self._revision_of(event.event_type, event.version, event.recipient)
        begun = Begun(event, owned.attempt, owned, notebook=self._notebooks.of(owned), deferrals=owned.deferrals)
        self._begun[owned] = begun
        return begun

    async def complete(self, begun: Begun, end: End) -> None:
        """Write its end."""
        after = self._confirmed_in(begun.event.event_type)
        await self._say(begun.token, end_of(begun.token, end, begun.attempt, after))

    async def fail(self, owned: Owned, why: Invalid) -> None:
        """Write the end of a row that holds no event, and has no dead letter. Raises as `complete` does."""
        await self._say(owned, end_of(owned, why, attempts=0))

    async def release(
        self, begun: Begun, why: Retry | Defer | None = None, *, counted: bool, rest: float = 0.0
    ) -> None:
        """Write when it comes again, and why."""
        await self._say(begun.token, again(begun.token, why, counted=counted, rest=rest))

    def abandon(self, begun: Begun) -> None:
        """Leave its lease to end."""
        self.forget(begun.token)

    def give_back(self, owned: Owned, rest: float) -> None:
        """Let go of a row that was not handled, unless there is nothing more to say about it."""
        if owned.over:
            return
        task = asyncio.create_task(self._give_back(owned, rest))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def refuse(self, owned: Owned) -> None:
        """Fail a row that holds no event; where the database is away, its lease ends by itself, and it comes again."""
        why = Invalid("the envelope is none; see the dead letter", "UNDECODABLE")
        with suppress(StoreUnavailableError, LeaseLostError):
            await self._say(owned, end_of(owned, why, attempts=0))
        self.forget(owned)

    def give_up(self) -> None:
        """Fail what is being asked now."""
        error = StoreUnavailableError("the process ends, and the inbox has not answered")
        self._words.fail(error)
        for give_up in self.also_given_up:
            give_up(error)

    async def close(self) -> None:
        """Give back what was not handled, and renew nothing any longer."""
        if self._giving_back:
            await asyncio.wait(self._giving_back, timeout=_HELD_PAUSE * 4)
        await self._keeper.close()

    def leave(self, owned: Owned) -> None:
        """Renew it no longer, from whatever thread: a transaction of its handler's ends its lease."""
        self._loop.call_soon_threadsafe(self._keeper.drop, owned)

    def forget(self, owned: Owned) -> None:
        """There is nothing more to say about it."""
        owned.over = True
        self._keeper.drop(owned)
        self._begun.pop(owned, None)

    async def _settle(self, words: Sequence[Word]) -> Sequence[str | BaseException]:
        """What became of each; where one of them is nothing that Postgres keeps, the others must not pay for it."""
        try:
            return await self._table.settle(words)
        except UNKEPT as error:
            if len(words) == 1:
                return [error]
        half = len(words) // 2
        return [*await self._settle(words[:half]), *await self._settle(words[half:])]

    async def _say(self, owned: Owned, word: Word) -> None:
        """Raises LeaseLostError where the word does not count, StoreUnavailableError where it may not have.

        Raises UnkeepableError where Postgres does not keep its result.
        """
        while True:
            try:
                answer = await self._words.ask(word)
            except UNKEPT as error:
                if word.result:
                    raise UnkeepableError from error
                raise
            match answer:
                # What was settled before was so by this word, whose answer was lost: nobody else has the token.
                case rows.SETTLED | rows.SETTLED_BEFORE:
                    self.forget(owned)
                    return
                case rows.HELD if self._clock.monotonic() < owned.deadline:
                    await self._clock.wait(self._never, _HELD_PAUSE)
                case _:
                    self.forget(owned)
                    raise LeaseLostError(f"delivery {owned.id} is no longer this process's: its lease was over")

    async def _give_back(self, owned: Owned, rest: float) -> None:
        try:
            await self._say(owned, unbegun(owned, rest))
        except (StoreUnavailableError, LeaseLostError):
            return  # its lease ends by itself, or has
        finally:
            self.forget(owned)

    async def _renew(self, held: Sequence[Owned]) -> Sequence[Renewed]:
        renewed: list[Renewed] = []
        for part in _parts(held):
            try:
                deadline, answers = await self._table.renew(part)
            except StoreUnavailableError as error:
                self._observe(HeartbeatFailed(self._table.identity.consumer, len(held), error))
                return [*renewed, *[None] * (len(held) - len(renewed))]
            for owned, answer in zip(part, answers, strict=True):
                match answer:
                    case "renewed":
                        owned.deadline = deadline
                        renewed.append(deadline)
                    case "lost":
                        renewed.append(LOST)
                    case _:
                        renewed.append(None)
        self._observe(Heartbeat(self._table.identity.consumer, len(held)))
        return renewed

    def _lose(self, owned: Owned) -> None:
        owned.over = True
        begun = self._begun.get(owned)
        if begun is not None:
            self._on_lost(begun)


def _parts(held: Sequence[Owned]) -> Iterator[Sequence[Owned]]:
    for place in range(0, len(held), MOST_ROWS):
        yield held[place : place + MOST_ROWS]
