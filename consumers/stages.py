"""The stages of a handler: how long each took, where it failed, and which one it is in."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from consumers.classification import code_of
from consumers.crossing import in_loop
from consumers.diary import Diary
from consumers.errors import UsageError
from consumers.events import CANCELLED, StageEnded
from consumers.notes import StageBegan
from consumers.notes import StageEnded as EndOfStage
from relay.kernel.code_duration import shown

_LONGEST_NAME = 64
# Without its name: in a failure, what is quoted is left out, and would take the rest of the sentence with it.
_CALLED = "ctx.stage(…)"
# Of the errors that passed a stage, the last ones; and of what caused an error, so many steps.
_REMEMBERED = 8
_MOST_STEPS = 50


class Stages:
    """Those of one attempt. They may lie in each other, and beside each other in tasks of their own."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._open: list[Stage] = []
        self._failed: deque[tuple[BaseException, str]] = deque(maxlen=_REMEMBERED)

    def stage(self, name: str) -> "Stage":
        """A stage that begins with its block."""
        return Stage(self, self._diary, _checked(name))

    def of(self, error: BaseException) -> str | None:
        """The stage that the error, or what it came of, has come out of: the innermost."""
        for each in _chain(error):
            for failed, name in self._failed:
                if failed is each:
                    return name
        return None

    def forget(self) -> None:
        """Keep no error alive."""
        self._failed.clear()

    async def begin(self, stage: "Stage") -> None:
        """It begins, and is noted."""
        stage.since = self._diary.clock.monotonic()
        self._open.append(stage)
        try:
            await self._diary.write(StageBegan(stage.name))
        except BaseException as error:  # a cancellation ends it as well
            await self.end(stage, error)
            raise

    async def end(self, stage: "Stage", error: BaseException | None) -> None:
        """It is over. Waits for its note only where nothing is wrong: nothing may stand in the way of an error."""
        self._open.remove(stage)
        seconds = self._diary.clock.monotonic() - stage.since
        code = None if error is None else _code(error)
        if error is not None and not self._has(error):
            self._failed.append((error, stage.name))
        self._diary.tell(StageEnded(self._diary.consumer, self._diary.event, stage.name, seconds, code or ""))
        note = EndOfStage(stage.name, seconds, code, self._open[-1].name if self._open else None)
        if error is None:
            await self._diary.write(note)
        else:
            self._diary.put(note)

    def _has(self, error: BaseException) -> bool:
        """Whether a stage within has it already, also where it was raised anew as something else."""
        step: BaseException | None = error
        for _ in range(_MOST_STEPS):
            if step is None:
                break
            if any(failed is step for failed, _ in self._failed):
                return True
            step = step.__cause__
        return False


class Stage:
    """A stage of a handler, for `async with`, or for `with` in a handler's thread."""

    __slots__ = ("_diary", "_stages", "name", "since")

    def __init__(self, stages: Stages, diary: Diary, name: str) -> None:
        self._stages = stages
        self._diary = diary
        self.name = name
        self.since = 0.0

    async def __aenter__(self) -> Self:
        """It begins."""
        await self._stages.begin(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> None:
        """It is over."""
        await self._stages.end(self, error)

    def __enter__(self) -> Self:
        """It begins, in a thread."""
        in_loop(self._diary.loop, lambda: self._stages.begin(self), _CALLED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> None:
        """It is over, in a thread."""
        in_loop(self._diary.loop, lambda: self._stages.end(self, error), _CALLED)


def _checked(name: object) -> str:
    if isinstance(name, str) and name.strip() and len(name) <= _LONGEST_NAME and name.isprintable():
        return name
    raise UsageError(
        f"ctx.stage({shown(name)}): a stage has a name of 1 to {_LONGEST_NAME} printable characters, the same for "
        "every event, such as upload"
    )


def _code(error: BaseException) -> str:
    return CANCELLED if isinstance(error, asyncio.CancelledError) else code_of(error)


def _chain(error: BaseException) -> "list[BaseException]":
    """The error, then what it came of and what is in it, the nearest first."""
    found = [error]
    for step in found:  # grows as it goes
        inner: list[BaseException | None] = [step.__cause__ or step.__context__]
        if isinstance(step, BaseExceptionGroup):
            inner += step.exceptions
        found += [each for each in inner if each is not None and not any(each is known for known in found)]
        if len(found) >= _MOST_STEPS:
            break
    return found
