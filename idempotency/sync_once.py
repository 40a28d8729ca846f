"""A body that is run once for an event, for code without an event loop."""

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

from idempotency.answers import Claimed, Result
from idempotency.errors import IdempotencyError, LeaseLostError
from idempotency.once import claimed, is_an_attempt, not_released
from idempotency.sync_keeper import SyncKeeper

if TYPE_CHECKING:
    from idempotency.sync_manager import SyncManager


class SyncOnce:
    """A claim for the length of a body: `with manager.once("billing", event_id) as work:`. Like `Once`, in a thread.

    The lease is renewed by a thread of its own, which ends with the body. A lost lease interrupts nothing: a long
    body calls `work.check()` between its steps, and a clean exit raises LeaseLostError where it comes too late.
    """

    def __init__(
        self,
        manager: "SyncManager",
        consumer: str,
        event_id: UUID | str,
        lease: timedelta | None,
        fingerprint: str | None,
    ) -> None:
        self._manager = manager
        self._consumer = consumer
        self._event_id = event_id
        self._lease = lease
        self._fingerprint = fingerprint
        self._keeper: SyncKeeper[Claimed] | None = None
        self.result: Result = None

    @property
    def claim(self) -> Claimed:
        """The claim as it was last renewed."""
        if self._keeper is None:
            raise RuntimeError("nothing is claimed yet; write `with manager.once(…) as work:`")
        return self._keeper.held

    @property
    def attempt(self) -> int:
        """Which attempt at the event this is, from 1."""
        return self.claim.attempt

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the event is no longer ours, if so."""
        return None if self._keeper is None else self._keeper.lost

    def check(self) -> None:
        """Raise LeaseLostError when the event is no longer ours."""
        if self.lost is not None:
            raise self.lost

    def __enter__(self) -> Self:
        answer = self._manager.claim(self._consumer, self._event_id, lease=self._lease, fingerprint=self._fingerprint)
        claim = claimed(self._consumer, self._event_id, answer)
        self._keeper = SyncKeeper(claim, self._manager.renew, self._manager.clock)
        self._keeper.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._keeper is not None  # noqa: S101 -- entered
        self._keeper.__exit__(kind, error, traceback)
        if error is None:
            self._manager.complete(self.claim, self.result)
        elif self.lost is None:
            self._give_back(error)

    def _give_back(self, error: BaseException) -> None:
        try:
            self._manager.release(self.claim, counted=is_an_attempt(error))
        except IdempotencyError as unreleased:
            error.add_note(not_released(self.claim, unreleased))
