"""A named lock that keeps everybody else out, for code without an event loop."""

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from idempotency.answers import InProgress, Locked
from idempotency.calls import Calls
from idempotency.errors import IdempotencyError, LeaseLostError
from idempotency.lock import Polling
from idempotency.sync_keeper import SyncKeeper

if TYPE_CHECKING:
    from idempotency.sync_manager import SyncManager


class SyncLock:
    """A lock for the length of a body: `with manager.lock("nightly-report"):`. Like `Lock`, in a thread.

    A lost lease interrupts nothing: a long body calls `check()` between its steps.
    """

    def __init__(self, manager: "SyncManager", calls: Calls, name: str, wait: timedelta, lease: timedelta) -> None:
        self._manager = manager
        self._calls = calls
        self._polling = Polling(calls, name, wait, lease, manager.clock, manager.chance)
        self._keeper: SyncKeeper[Locked] | None = None

    @property
    def held(self) -> Locked:
        """The lock as it was last renewed."""
        if self._keeper is None:
            raise RuntimeError("the lock is not taken yet; write `with manager.lock(…):`")
        return self._keeper.held

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lock is no longer ours, if so."""
        return None if self._keeper is None else self._keeper.lost

    def check(self) -> None:
        """Raise LeaseLostError when the lock is no longer ours."""
        if self.lost is not None:
            raise self.lost

    def __enter__(self) -> Self:
        while isinstance(answer := self._manager.ask_one(self._polling.call), InProgress):
            self._manager.sleep(self._polling.pause(answer))
        self._keeper = SyncKeeper(answer, self._renew, self._manager.clock)
        self._keeper.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._keeper is not None  # noqa: S101 -- entered
        self._keeper.__exit__(kind, error, traceback)
        try:
            self._manager.ask_one(self._polling.undoing)
        except IdempotencyError as unreleased:
            if error is None:
                raise
            error.add_note(self._polling.not_given_back(unreleased))

    def _renew(self, held: Locked) -> Locked:
        return self._manager.ask_one(self._calls.lock_renewal(held))
