"""`check_and_mark_processed` before the effect: at most once."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from consumers.attempts import Attempts
from consumers.dead_letters import BURIED
from consumers.dedup.protocol import AlreadyDone, Begun, End, InProgress, Mode, OnLost
from consumers.dedup.tokens import Tokens
from consumers.delivery import Delivery
from consumers.gather import Gather
from consumers.outcome import Dead, Defer, Invalid, Retry
from consumers.received import Received
from idempotency import Claimed, Done, Marked, Store, StoreUnavailableError
from idempotency import InProgress as Held


class MarkDedup:
    """At most once: an event whose consumer dies between its mark and its effect is not acted on.

    Nor is one whose consumer stops, or hands it back, while the store is away: the mark stays behind.

    A handler that fails, and says so, takes its mark back, and is tried again as in the other modes.
    """

    mode = Mode.MARK
    durable = False

    def __init__(self, store: Store, consumer: str) -> None:
        self._store = store
        self._consumer = consumer
        self._attempts = Attempts()
        self._tokens = Tokens()
        self._marks: Gather[tuple[UUID, str], Any] = Gather(self._mark_many)

    async def open(self, on_lost: OnLost, retention: timedelta | None) -> list[str]:  # noqa: ARG002 -- a mark is not lost
        """Begin."""
        try:
            return await self._store.examine(retention)
        except StoreUnavailableError as error:
            return [f"the store cannot be asked now, and nothing is begun until it can: {error}"]

    async def begin(self, event: Received[Any], delivery: Delivery) -> Begun | AlreadyDone | InProgress:
        """Mark it, unless it is marked."""
        match await self._tokens.ask(event.event_id, self._marks.ask):
            case Marked() as mark:
                return Begun(event, self._attempts.begin(event.event_id, delivery.attempt), mark)
            case Held(retry_after):
                return InProgress(retry_after.total_seconds())
            case Done():
                return AlreadyDone()
            case other:
                raise TypeError(f"the store answered {other!r}")

    async def complete(self, begun: Begun, end: End) -> None:
        """It is marked already, without a result; but of a dead letter the mark says so."""
        if isinstance(end, Dead | Invalid):
            await self._bury(begun)
        self._attempts.forget(begun.event.event_id)

    async def release(
        self,
        begun: Begun,
        why: Retry | Defer | None = None,  # noqa: ARG002 -- a mark has no room for it
        *,
        counted: bool,
        rest: float = 0.0,  # noqa: ARG002 -- it rests here
    ) -> None:
        """Take the mark back: the next delivery is acted on."""
        if counted:
            self._attempts.failed(begun.event.event_id, begun.attempt)
        try:
            await self._store.unmark(begun.token)
        except BaseException:  # a cancellation, too
            # The mark may be there still; this process at least knows it for its own.
            self._tokens.keep(begun.event.event_id, begun.token.token)
            raise

    def abandon(self, begun: Begun) -> None:
        """The mark stays."""

    def give_up(self) -> None:
        """Fail what is being asked now."""
        self._marks.fail(StoreUnavailableError("the process ends, and the store has not answered"))

    async def close(self) -> None:
        """Nothing is renewed."""

    async def _mark_many(self, asked: Sequence[tuple[UUID, str]]) -> Sequence[Any]:
        tokens = [token for _, token in asked]
        return await self._store.mark_many(self._consumer, [event for event, _ in asked], tokens=tokens)

    async def _bury(self, begun: Begun) -> None:
        """Make the mark anew, of the kind that keeps a result. Whoever takes the event in between, has it."""
        await self._store.unmark(begun.token)
        claim = await self._store.claim(self._consumer, begun.event.event_id)
        if isinstance(claim, Claimed):
            await self._store.complete(claim, json.dumps(BURIED))
