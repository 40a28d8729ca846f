"""From the thread of a plain function to the event loop, and back with the answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from consumers.errors import UsageError

_T = TypeVar("_T")


def in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], Coroutine[Any, Any, _T]], what: str) -> _T:
    """Run the coroutine in the loop, and wait for it in this thread. Raises UsageError as `refuse_in_loop`."""
    refuse_in_loop(loop, what)
    coroutine = call()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise UsageError("the consumer of this handler has ended, and nobody waits for it any more") from None
    return future.result()


def refuse_in_loop(loop: asyncio.AbstractEventLoop, what: str) -> None:
    """Raise UsageError where the caller would block the event loop by `with` and this."""
    if is_in(loop):
        raise UsageError(f"with {what} would block every other handler; write: async with {what}")


def is_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the loop, and no thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
