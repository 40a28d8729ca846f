"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

SECONDS = 30.0
STEP = 0.01


def until(condition: Callable[[], bool], what: str, seconds: float = SECONDS, step: float = STEP) -> None:
    """Return as soon as the condition holds; fail the test when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(step)


async def until_async(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = SECONDS) -> None:
    """Like `until`, for a condition that has to be awaited."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        await asyncio.sleep(STEP)
