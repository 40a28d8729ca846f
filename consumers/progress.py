"""How far a handler is, told often and noted now and then."""

import asyncio
import math
import threading
from collections.abc import Generator
from numbers import Real

from consumers.crossing import is_in
from consumers.diary import Diary
from consumers.errors import UsageError
from consumers.events import ProgressMade
from consumers.notes import Progressed
from relay.kernel.code_duration import shown

# What moved by less is noted when so much time has passed since the last note.
_STEP = 1.0
_SECONDS = 0.5
_WHOLE = 100.0


class Told:
    """Nothing has to wait for it; `await` gives the event loop a turn."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Let others have a turn."""
        yield from asyncio.sleep(0).__await__()


_TOLD = Told()


class Progress:
    """That of one attempt. Safe to use from any thread."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._lock = threading.Lock()
        self._last: float | None = None
        self._at = 0.0
        self._newest: float | None = None
        self._on_its_way = False

    def say(self, percent: float) -> Told:
        """Say how far it is; it may go back. Noted where it has moved by 1, after half a second, and at 100 always."""
        told = _checked(percent)
        self._diary.check()
        here = is_in(self._diary.loop)
        with self._lock:
            now = self._diary.clock.monotonic()
            if not self._is_worth_a_note(told, now):
                return _TOLD
            self._last, self._at, self._newest = told, now, told
            if not here:
                if not self._on_its_way:
                    self._diary.loop.call_soon_threadsafe(self._hand_over)
                self._on_its_way = True
        if here:
            self._hand_over()
        return _TOLD

    def _is_worth_a_note(self, percent: float, now: float) -> bool:
        last = self._last
        if last is None:
            return True
        if percent == last:
            return False
        return percent == _WHOLE or abs(percent - last) >= _STEP or now - self._at >= _SECONDS

    def _hand_over(self) -> None:
        with self._lock:
            newest, self._newest, self._on_its_way = self._newest, None, False
        if newest is not None:
            self._diary.tell(ProgressMade(self._diary.consumer, self._diary.event, newest))
            self._diary.put_newest(Progressed(newest))


def _checked(percent: object) -> float:
    try:
        number = float(percent) if isinstance(percent, Real) and not isinstance(percent, bool) else math.nan
    except (OverflowError, ValueError):  # a number that is larger than any of these
        number = math.nan
    if not 0 <= number <= _WHOLE:
        raise UsageError(f"ctx.progress({shown(percent)}): give a number from 0 to 100")
    return number + 0.0
