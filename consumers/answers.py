"""What a function answers for several at once, taken apart: one answer for each, in order."""

import inspect
from collections.abc import Awaitable
from typing import Any

from consumers.errors import UsageError
from consumers.outcome import OUTCOMES


def for_each(answer: Any, count: int, name: str, *, silence_is_done: bool) -> list[Any]:
    """The answer for each of so many. Raises UsageError where it is not plain which one is whose."""
    if isinstance(answer, Awaitable):
        if inspect.iscoroutine(answer):
            answer.close()
        raise UsageError(f"{name} answered with an awaitable that nobody awaits; make it async def")
    if isinstance(answer, OUTCOMES) or (answer is None and silence_is_done):
        return [answer] * count
    if not isinstance(answer, list | tuple):
        raise UsageError(
            f"{name} was called with {count} and answered with {_kind(answer)}; return a list with an answer for each, "
            "in their order, or one outcome for all"
        )
    if len(answer) != count:
        raise UsageError(
            f"{name} was called with {count} and answered for {len(answer)}; return a list with an answer for each, "
            "in their order"
        )
    return list(answer)


def _kind(answer: object) -> str:
    return "nothing" if answer is None else f"a {type(answer).__name__}"
