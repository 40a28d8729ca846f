"""What a handler has for the length of a block: a transaction, or a lock."""

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Self

from consumers.crossing import in_loop, refuse_in_loop
from consumers.dedup.protocol import Begun, Effects
from consumers.errors import UsageError


class Transaction:
    """One transaction, for `async with`, or for `with` in a handler's thread."""

    def __init__(self, effects: Effects, begun: Begun | None, loop: asyncio.AbstractEventLoop) -> None:
        self._effects = effects
        self._begun = begun
        self._loop = loop
        self._open: AbstractAsyncContextManager[Any] | None = None
        self._open_in_thread: AbstractContextManager[Any] | None = None

    async def __aenter__(self) -> Any:
        """Begin, on an asynchronous connection."""
        self._open = self._effects.transaction()
        return await self._open.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> bool | None:
        """Commit, or roll back where an error comes by."""
        assert self._open is not None  # noqa: S101 -- entered
        if error is None and self._begun is not None and self._begun.unawaited:
            # Committed, the effect would be there without the completion, and again with each attempt.
            misuse = UsageError("nobody awaits ctx.complete(…); the transaction is rolled back: write await before it")
            await self._open.__aexit__(UsageError, misuse, None)
            raise misuse
        return await self._open.__aexit__(kind, error, step)

    def __enter__(self) -> Any:
        """Begin, on a synchronous connection."""
        refuse_in_loop(self._loop, "ctx.transaction()")
        self._open_in_thread = self._effects.transaction_in_thread()
        return self._open_in_thread.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> bool | None:
        """Commit, or roll back where an error comes by."""
        assert self._open_in_thread is not None  # noqa: S101 -- entered
        return self._open_in_thread.__exit__(kind, error, step)


class Lock:
    """A named lock, for `async with`, or for `with` in a handler's thread."""

    def __init__(self, lock: AbstractAsyncContextManager[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._lock = lock
        self._loop = loop

    async def __aenter__(self) -> Self:
        """Wait for the lock."""
        await self._lock.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> bool | None:
        """Give it back."""
        return await self._lock.__aexit__(kind, error, step)

    def __enter__(self) -> Self:
        """Wait for the lock, in a thread."""
        in_loop(self._loop, self.__aenter__, "ctx.lock(…)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> bool | None:
        """Give it back. Raises LeaseLostError where it was lost meanwhile: a thread cannot be cancelled for it."""
        swallowed = in_loop(self._loop, lambda: self.__aexit__(kind, error, step), "ctx.lock(…)")
        if error is None and (lost := getattr(self._lock, "lost", None)) is not None:
            raise lost
        return swallowed
