"""A claim before the effect, the completion behind it: what Redis can do for acting once."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from consumers.dedup.protocol import AlreadyDone, Begun, InProgress, Mode, OnLost, UnkeepableError
from consumers.dedup.tokens import Tokens
from consumers.gather import Gather
from consumers.received import Received
from idempotency import Claimed, Done, LeaseLostError, Store, StoreUnavailableError
from idempotency import InProgress as Held
from relay.kernel.clock import Clock, SystemClock

_LOG = logging.getLogger(__name__)
_RESULT: TypeAdapter[Any] = TypeAdapter(Any)
# A lease is renewed so many times in its length: three failures in a row do not lose it.
_RENEWALS = 4
_SHORTEST_LOOK = 0.05


class ClaimDedup:
    """Once, but for a consumer that dies between its effect and the completion.

    All claims of a process are renewed together. What cannot be renewed is lost when its lease ends by our own clock,
    which began before the store's did; whoever acts on it is told then.
    """

    mode = Mode.CLAIM

    def __init__(self, store: Store, consumer: str, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._on_lost: OnLost = lambda _: None
        self._held: set[Begun] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._never = asyncio.Event()
        self._consumer = consumer
        self._tokens = Tokens()
        self._claims: Gather[tuple[UUID, str], Any] = Gather(self._claim_many)
        self._completions: Gather[tuple[Claimed, Any], Any] = Gather(self._complete_many)

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:
        """Begin to keep what is claimed."""
        self._on_lost = on_lost
        warnings = await self._store.examine(retention)
        self._keeper = asyncio.create_task(self._keep())
        return warnings

    async def begin(self, event: Received[Any], delivery_attempt: int) -> Begun | AlreadyDone | InProgress:  # noqa: ARG002 -- the store counts
        """Claim it, unless it is done or somebody else's."""
        match await self._tokens.ask(event.event_id, self._claims.ask):
            case Claimed() as claim:
                if not claim.is_held(self._store.clock()):
                    # The answer lay about for longer than the lease: somebody else may have the event by now.
                    await self._store.release(claim, counted=False)
                    return InProgress(0.0)
                begun = Begun(event, claim.attempt, claim)
                self._held.add(begun)
                return begun
            case Held(retry_after):
                return InProgress(retry_after.total_seconds())
            case Done():
                return AlreadyDone()
            case other:
                raise TypeError(f"the store answered {other!r}")

    async def complete(self, begun: Begun, result: Any = None) -> None:
        """Have it known as done, with the result."""
        try:
            kept = None if result is None else _RESULT.dump_json(result)
        except Exception as error:
            raise UnkeepableError from error
        await self._completions.ask((begun.token, kept))
        self._held.discard(begun)

    async def release(self, begun: Begun, *, counted: bool, rest: float = 0.0) -> None:
        """Give the claim back."""
        self._held.discard(begun)
        await self._store.release(begun.token, counted=counted, rest=timedelta(seconds=rest))

    def abandon(self, begun: Begun) -> None:
        """Renew it no longer."""
        self._held.discard(begun)

    def give_up(self) -> None:
        """Fail what is being asked now, and what is asked from now on only once."""
        error = StoreUnavailableError("the process ends, and the store has not answered")
        self._claims.fail(error)
        self._completions.fail(error)

    async def close(self) -> None:
        """Renew nothing any longer."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    async def _claim_many(self, asked: Sequence[tuple[UUID, str]]) -> Sequence[Any]:
        tokens = [token for _, token in asked]
        return await self._store.claim_many(self._consumer, [event for event, _ in asked], tokens=tokens)

    async def _complete_many(self, done: Sequence[tuple[Claimed, Any]]) -> Sequence[Any]:
        return await self._store.complete_many([claim for claim, _ in done], [result for _, result in done])

    async def _keep(self) -> None:
        """Renew all leases at their time, and say of each in time that it has ended, whatever the store does."""
        pause = self._store.settings.lease.total_seconds() / _RENEWALS
        renewal: asyncio.Task[None] | None = None
        due = self._store.clock() + pause
        try:
            while True:
                now = self._store.clock()
                if renewal is not None and renewal.done() and (surprise := renewal.exception()) is not None:
                    _LOG.error("leases were not renewed, and are again in a moment", exc_info=surprise)
                    renewal = None
                if now >= due and (renewal is None or renewal.done()):
                    renewal, due = asyncio.create_task(self._renew(list(self._held))), now + pause
                self._lose_what_ended(now)
                earliest = min((begun.token.deadline for begun in self._held), default=due)
                await self._clock.wait(
                    self._never, max(_SHORTEST_LOOK, min(max(due, now + _SHORTEST_LOOK), earliest) - now)
                )
        finally:
            if renewal is not None:
                renewal.cancel()
                await asyncio.gather(renewal, return_exceptions=True)

    def _lose_what_ended(self, now: float) -> None:
        for begun in [begun for begun in self._held if not begun.token.is_held(now)]:
            self._lose(begun)

    async def _renew(self, held: Sequence[Begun]) -> None:
        if not held:
            return
        answers = await self._store.renew_many([begun.token for begun in held])
        for begun, answer in zip(held, answers, strict=True):
            match answer:
                case _ if begun not in self._held:
                    pass
                case Claimed():
                    begun.token = answer
                case LeaseLostError():
                    self._lose(begun)
                case _:
                    pass  # asked again, until its lease ends

    def _lose(self, begun: Begun) -> None:
        self._held.discard(begun)
        self._on_lost(begun)
