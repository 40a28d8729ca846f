"""A body that is run once for an event, over all consumers and deliveries."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from idempotency.answers import ClaimAnswer, Claimed, Done, InProgress, Result
from idempotency.errors import AlreadyDoneError, IdempotencyError, LeaseLostError
from idempotency.keeper import Keeper, to_the_end
from idempotency.readings import in_progress

if TYPE_CHECKING:
    from idempotency.store import Store


class Once:
    """A claim for the length of a body: `async with store.once("billing", event_id) as work:`.

    The body is entered by whoever claims the event, and by nobody else: AlreadyDoneError and InProgressError are
    raised before it, so nothing has to be asked in it. A clean exit completes the event with `work.result`; an
    exception releases it, counted as an attempt; a cancellation and the end of the process release it uncounted.

    The lease is renewed meanwhile. When it is lost the body is cancelled and LeaseLostError is raised, as it is on a
    clean exit that comes too late: somebody else holds or has completed the event, and this effect may be a second.
    """

    def __init__(
        self,
        store: "Store",
        consumer: str,
        event_id: UUID | str,
        lease: timedelta | None,
        fingerprint: str | None,
    ) -> None:
        self._store = store
        self._consumer = consumer
        self._event_id = event_id
        self._lease = lease
        self._fingerprint = fingerprint
        self._keeper: Keeper[Claimed] | None = None
        self.result: Result = None

    @property
    def claim(self) -> Claimed:
        """The claim as it was last renewed."""
        if self._keeper is None:
            raise RuntimeError("nothing is claimed yet; write `async with store.once(…) as work:`")
        return self._keeper.held

    @property
    def attempt(self) -> int:
        """Which attempt at the event this is, from 1."""
        return self.claim.attempt

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the event is no longer ours, if so."""
        return None if self._keeper is None else self._keeper.lost

    async def __aenter__(self) -> Self:
        claim = claimed(self._consumer, self._event_id, await self._claim())
        self._keeper = Keeper(claim, self._store.renew, self._store.clock, self._store.sleep)
        await self._keeper.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._keeper is not None  # noqa: S101 -- entered
        await self._keeper.__aexit__(kind, error, traceback)
        if error is None:
            await to_the_end(self._store.complete(self.claim, self.result))
        elif self.lost is None:
            await self._give_back(error)

    async def _claim(self) -> ClaimAnswer:
        asked = asyncio.create_task(
            self._store.claim(self._consumer, self._event_id, lease=self._lease, fingerprint=self._fingerprint)
        )
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asyncio.wait([asked])
            if not asked.cancelled() and asked.exception() is None and isinstance(asked.result(), Claimed):
                with suppress(IdempotencyError):  # it runs out by itself
                    await self._store.release(asked.result(), counted=False)  # type: ignore[arg-type]
            raise

    async def _give_back(self, error: BaseException) -> None:
        try:
            await to_the_end(self._store.release(self.claim, counted=is_an_attempt(error)))
        except IdempotencyError as unreleased:
            error.add_note(not_released(self.claim, unreleased))


def claimed(consumer: str, event_id: UUID | str, answer: ClaimAnswer) -> Claimed:
    """The claim, or the error that says why there is none."""
    match answer:
        case Claimed():
            return answer
        case InProgress():
            raise in_progress(consumer, event_id, answer.retry_after)
        case Done():
            raise AlreadyDoneError(f"event {event_id} was processed by {consumer!r} before", answer.result)


def is_an_attempt(error: BaseException) -> bool:
    """Whether the body has failed, and was not merely broken off."""
    return isinstance(error, Exception)


def not_released(claim: Claimed, error: Exception) -> str:
    """What to add to the error of a body whose claim stays until it runs out."""
    return f"The claim of event {claim.event_id} could not be released ({error}); it runs out within {claim.lease}."
