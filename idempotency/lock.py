"""A named lock that keeps everybody else out, on all machines."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from idempotency.answers import InProgress, Locked
from idempotency.calls import Calls
from idempotency.errors import IdempotencyError, LeaseLostError, LockTimeoutError
from idempotency.keeper import Keeper, to_the_end
from idempotency.settings import milliseconds

if TYPE_CHECKING:
    from idempotency.store import Store

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_NONE = timedelta(0)


class Lock:
    """A lock for the length of a body: `async with store.lock("nightly-report"):`.

    The lease is renewed meanwhile. When it is lost the body is cancelled and LeaseLostError is raised: somebody else
    may hold the lock by then. Who waits asks again after pauses with jitter; there is no queue and no order.
    """

    def __init__(self, store: "Store", calls: Calls, name: str, wait: timedelta, lease: timedelta) -> None:
        self._store = store
        self._calls = calls
        self._polling = Polling(calls, name, wait, lease, store.clock, store.chance)
        self._keeper: Keeper[Locked] | None = None

    @property
    def held(self) -> Locked:
        """The lock as it was last renewed."""
        if self._keeper is None:
            raise RuntimeError("the lock is not taken yet; write `async with store.lock(…):`")
        return self._keeper.held

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lock is no longer ours, if so."""
        return None if self._keeper is None else self._keeper.lost

    async def __aenter__(self) -> Self:
        self._keeper = Keeper(await self._take(), self._renew, self._store.clock, self._store.sleep)
        await self._keeper.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._keeper is not None  # noqa: S101 -- entered
        await self._keeper.__aexit__(kind, error, traceback)
        try:
            await to_the_end(self._store.ask_one(self._polling.undoing))
        except IdempotencyError as unreleased:
            if error is None:
                raise
            error.add_note(self._polling.not_given_back(unreleased))

    async def _take(self) -> Locked:
        try:
            while isinstance(answer := await self._store.ask_one(self._polling.call), InProgress):
                await self._store.sleep(self._polling.pause(answer))
        except asyncio.CancelledError:
            # The lock may be ours without our knowing; otherwise it would keep everybody out for a lease.
            with suppress(IdempotencyError):
                await self._store.ask(self._polling.undoing)
            raise
        return answer

    async def _renew(self, held: Locked) -> Locked:
        return await self._store.ask_one(self._calls.lock_renewal(held))


class Polling:
    """How a lock is waited for: what is asked, how often, until when."""

    def __init__(  # noqa: PLR0913, PLR0917 -- what both faces know of a lock
        self,
        calls: Calls,
        name: str,
        wait: timedelta,
        lease: timedelta,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        milliseconds("wait", wait, least=_NONE)
        token = secrets.token_hex(16)
        self.call = calls.lock(name, token, lease)
        self.undoing = calls.discard(calls.keys.lock(name), token)
        self._name = name
        self._wait = wait
        self._clock = clock
        self._chance = chance
        self._next = _FIRST_PAUSE
        self._until: float | None = None

    def pause(self, answer: InProgress) -> float:
        """The seconds until the next time to ask. Raises LockTimeoutError when the time is up."""
        now = self._clock()
        if self._until is None:
            self._until = now + self._wait.total_seconds()
        left = self._until - now
        if left <= 0:
            raise LockTimeoutError(
                f"the lock {self._name!r} is held by somebody else, after waiting for {self._wait}", answer.retry_after
            )
        pause = self._next * (0.5 + self._chance() / 2)
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        return min(pause, left, max(answer.retry_after.total_seconds(), _FIRST_PAUSE))

    def not_given_back(self, error: Exception) -> str:
        """What to add to the error of a body whose lock stays until it runs out."""
        return f"The lock {self._name!r} could not be given back ({error}); it runs out by itself."
