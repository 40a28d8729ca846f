"""Functions that take effect once for each key: HTTP handlers, jobs, whatever is no consumer of messages."""

import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast
from uuid import UUID

from idempotency.answers import Result
from idempotency.errors import AlreadyDoneError, ResultError
from idempotency.keys import identity_of_text

if TYPE_CHECKING:
    from idempotency.store import Store

P = ParamSpec("P")
T = TypeVar("T")

Key: TypeAlias = Callable[..., UUID | str]


class Codec(Protocol):
    """How results are kept: `dumps` makes a text or bytes, `loads` takes what `dumps` made."""

    def dumps(self, value: Any, /) -> str | bytes:
        """The value as it is stored."""

    def loads(self, stored: Any, /) -> Any:
        """The value again."""


class JsonCodec:
    """Results as JSON: what comes back to a repeat is what JSON makes of the value, a tuple becomes a list."""

    def dumps(self, value: Any, /) -> str:
        """The value as JSON, without blanks."""
        return json.dumps(value, separators=(",", ":"))

    def loads(self, stored: str | bytes, /) -> Any:
        """What the JSON says."""
        return json.loads(stored)


JSON = JsonCodec()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How calls of a function are recognised, and how their results are kept."""

    consumer: str
    key: Key
    lease: timedelta | None
    fingerprint: Callable[..., str] | None
    codec: Codec

    def event_id(self, *args: Any, **kwargs: Any) -> UUID:
        """What stands for a call: its key, or the UUID that is derived from a text."""
        key = self.key(*args, **kwargs)
        return key if isinstance(key, UUID) else identity_of_text(key)

    def print_of(self, *args: Any, **kwargs: Any) -> str | None:
        """The fingerprint of a call, where one is wanted."""
        return None if self.fingerprint is None else self.fingerprint(*args, **kwargs)

    def kept(self, value: Any) -> tuple[Result, ResultError | None]:
        """The value as it is stored; or nothing, and the error to raise once the effect is marked as done."""
        try:
            return self.codec.dumps(value), None
        except Exception as error:  # noqa: BLE001 -- the user's codec; after the effect nothing may undo the mark
            refused = ResultError(
                f"{self.consumer!r} took effect and is marked as done, but its result, a {type(value).__name__},"
                f" cannot be kept ({type(error).__name__}: {error}); repeats get AlreadyDoneError. Return what the"
                " codec takes."
            )
            refused.__cause__ = error
            return None, refused

    def again(self, done: AlreadyDoneError) -> Any:
        """The result of the first time. Raises the error again where none was kept."""
        if done.result is None:
            raise done
        try:
            return self.codec.loads(done.result)
        except Exception as error:
            raise ResultError(
                f"{self.consumer!r} took effect before, but the codec cannot read the result that was kept"
                f" ({type(error).__name__}: {error}); the event is done, read its effect where it took place"
            ) from error


class Idempotent:
    """Decorates coroutine functions: the first call of a key runs, repeats get its result, as the codec returns it.

    While the first one runs, another raises InProgressError; where it raises, the key is free again. A repeat whose
    result was not kept raises AlreadyDoneError; a key that comes with another fingerprint FingerprintConflictError.
    """

    def __init__(self, store: "Store", recipe: Recipe) -> None:
        self._store = store
        self._recipe = recipe

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """The function that runs once for each key."""
        recipe = self._recipe

        @functools.wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            once = self._store.once(
                recipe.consumer,
                recipe.event_id(*args, **kwargs),
                lease=recipe.lease,
                fingerprint=recipe.print_of(*args, **kwargs),
            )
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(once)
                except AlreadyDoneError as done:
                    return cast("T", recipe.again(done))
                value = await function(*args, **kwargs)
                once.result, refused = recipe.kept(value)
            if refused is not None:
                raise refused
            return value

        return run
