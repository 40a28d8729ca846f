"""Named locks over all processes that share an inbox, for consumers without a Redis."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from consumers.clock import Clock
from consumers.inbox.session import Session
from idempotency import IdempotencyError, InvalidKeyError, LeaseLostError, Locked, LockTimeoutError
from idempotency.keeper import Keeper, to_the_end
from relay.kernel.backoff import Jitter
from relay.postgres.wire import Row

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 1.0
# What an index of Postgres holds for sure.
_LONGEST_NAME: Final = 1_024


class InboxLocks:
    """Gives out locks on a connection of their own, so that nobody's words wait behind those who poll."""

    def __init__(self, session: Session, clock: Clock, lease: timedelta, jitter: Jitter) -> None:
        self._session = session
        self._clock = clock
        self._lease = lease
        self._jitter = jitter
        self._never = asyncio.Event()

    def lock(self, name: str, *, wait: timedelta) -> "InboxLock":
        """The lock of this name. Raises InvalidKeyError where that is none."""
        if not name.strip() or "\0" in name or len(name.encode()) > _LONGEST_NAME:
            raise InvalidKeyError(
                f"the name of the lock is {name!r:.80}; give a text of 1 to {_LONGEST_NAME} bytes, not blank and "
                "without NUL"
            )
        return InboxLock(self, name, wait)

    async def take(self, name: str, token: str) -> Locked | float:
        """Take it, or answer how many seconds its holder has it for, unless it is renewed or given back."""
        deadline = self._clock.monotonic() + self._lease.total_seconds()
        ((taken, left),) = await self._ask("lock_take", name, token, {"lease": self._lease.total_seconds()})
        return Locked(name, token, deadline, self._lease) if taken else float(left)

    async def renew(self, held: Locked) -> Locked:
        """Have it for longer. Raises LeaseLostError where somebody else has it."""
        deadline = self._clock.monotonic() + self._lease.total_seconds()
        if not await self._ask("lock_renew", held.name, held.token, {"lease": self._lease.total_seconds()}):
            raise LeaseLostError(f"the lock {held.name!r} is no longer ours: it ran out, and somebody else took it")
        return Locked(held.name, held.token, deadline, self._lease)

    async def release(self, name: str, token: str) -> None:
        """Give it back, unless somebody else has it."""
        await self._ask("lock_release", name, token, {})

    async def keep(self, held: Locked) -> "Keeper[Locked]":
        """Renew it from now on, on behalf of the current task."""
        keeper = Keeper(held, self.renew, self._clock.monotonic, self._sleep)
        await keeper.__aenter__()
        return keeper

    async def wait_for(self, name: str, token: str, wait: timedelta) -> Locked:
        """Take it as soon as it is free. Raises LockTimeoutError."""
        pause = _FIRST_PAUSE
        until = self._clock.monotonic() + wait.total_seconds()
        while not isinstance(answer := await self.take(name, token), Locked):
            left = until - self._clock.monotonic()
            if left <= 0:
                raise LockTimeoutError(
                    f"the lock {name!r} is held by somebody else, after waiting for {wait}", timedelta(seconds=answer)
                )
            # Several that wait for one lock do not ask at once.
            await self._sleep(min(pause / 2 + self._jitter(pause / 2), left, max(answer, _FIRST_PAUSE)))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return answer

    async def close(self) -> None:
        """End the connection."""
        await self._session.close()

    def cut(self) -> None:
        """End it without a word, and make none any more."""
        self._session.cut()

    async def _sleep(self, seconds: float) -> None:
        await self._clock.wait(self._never, seconds)

    async def _ask(self, statement: str, name: str, token: str, values: Mapping[str, object]) -> list[Row]:
        return await self._session.ask(statement, {"name": name, "token": token, **values})


class InboxLock:
    """One of them, for `async with`. It is renewed meanwhile; where it is lost, the body is cancelled."""

    def __init__(self, locks: InboxLocks, name: str, wait: timedelta) -> None:
        self._locks = locks
        self._name = name
        self._wait = wait
        self._token = ""
        self._keeper: Keeper[Locked] | None = None

    @property
    def lost(self) -> LeaseLostError | None:
        """Why the lock is no longer ours, if so."""
        return None if self._keeper is None else self._keeper.lost

    async def __aenter__(self) -> Self:
        self._token = str(uuid4())
        try:
            held = await self._locks.wait_for(self._name, self._token, self._wait)
        except asyncio.CancelledError:
            # It may be ours without our knowing; otherwise it would keep everybody out for a lease.
            with suppress(IdempotencyError):
                await self._locks.release(self._name, self._token)
            raise
        self._keeper = await self._locks.keep(held)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> None:
        assert self._keeper is not None  # noqa: S101 -- entered
        await self._keeper.__aexit__(kind, error, step)
        try:
            await to_the_end(self._locks.release(self._name, self._token))
        except IdempotencyError as unreleased:
            if error is None:
                raise
            error.add_note(f"The lock {self._name!r} could not be given back ({unreleased}); it runs out by itself.")
