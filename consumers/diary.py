"""What is told of one attempt while it lasts: notes for its history, in their order, and events for all who listen."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from consumers.clock import Clock
from consumers.errors import UsageError
from consumers.events import NoteLost
from consumers.notes import Note, Notebook, Progressed
from consumers.received import Received
from idempotency import LeaseLostError
from relay.kernel.observe import Observe

# How long the end of an attempt waits for its last notes; what comes after it needs the same database.
_PATIENCE = 5.0


@dataclass(slots=True)
class _Entry:
    note: Note
    noted: "asyncio.Future[None]"


class Diary:
    """Hands the notes of one attempt to its notebook, one at a time. Without one, notes go nowhere.

    A note that cannot be kept is told of, and the work goes on; only that the delivery is lost is an error.
    """

    def __init__(  # noqa: PLR0913 -- who tells what of whom to whom, and when
        self,
        *,
        consumer: str,
        event: Received[Any],
        notebook: Notebook | None,
        completed: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        observe: Observe,
    ) -> None:
        self.consumer = consumer
        self.event = event
        self.loop = loop
        self.clock = clock
        self._notebook = notebook
        self._completed = completed
        self._observe = observe
        self._waiting: deque[_Entry] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._lost: LeaseLostError | None = None
        self._closed = False

    def tell(self, event: object) -> None:
        """Let everybody hear of it. In the loop."""
        self._observe(event)

    def tell_from_anywhere(self, event: object) -> None:
        """The same in any thread, even when the loop is closed and nobody listens any more."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._observe, event)

    def check(self) -> None:
        """Raise LeaseLostError where a note has found the delivery lost, UsageError after the attempt's end."""
        if self._lost is not None and not self._completed():
            raise LeaseLostError(str(self._lost)) from self._lost
        if self._closed:
            raise UsageError("the attempt is over: await what uses the context before the handler returns")

    async def write(self, note: Note) -> None:
        """Return when it was noted, with all that came before it. Raises as `check`.

        Waits for nothing once a transaction of the handler's own has completed the delivery: while that is open, it may
        be what the note waits for.
        """
        if asyncio.get_running_loop() is not self.loop:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.write(note), self.loop))
            return
        self.check()
        if (noted := self.put(note)) is not None and not self._completed():
            await noted
            self.check()

    def put(self, note: Note) -> "asyncio.Future[None] | None":
        """Note it when its turn comes; what is answered ends then. In the loop."""
        if self._notebook is None or self._lost is not None or self._closed:
            return None
        entry = _Entry(note, self.loop.create_future())
        self._waiting.append(entry)
        if self._writer is None or self._writer.done():
            self._writer = self.loop.create_task(self._write(self._notebook))
        return entry.noted

    def put_newest(self, note: Progressed) -> None:
        """Note it in place of the progress before it, where that has not had its turn. In the loop."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and isinstance(last.note, Progressed):
            last.note = note
        else:
            self.put(note)

    async def close(self) -> None:
        """Wait for the last notes, for a while."""
        self._closed = True
        if self._writer is None or self._writer.done():
            return
        timer = self.clock.call_later(_PATIENCE, self._writer.cancel)
        try:
            await asyncio.wait([self._writer])
        finally:
            timer.cancel()
            self._writer.cancel()

    async def _write(self, notebook: Notebook) -> None:
        entry: _Entry | None = None
        try:
            while self._waiting:
                entry = self._waiting.popleft()
                await self._note(notebook, entry.note)
                _end(entry)
        except asyncio.CancelledError:
            if entry is not None:
                self._tell_lost(entry.note, TimeoutError("the attempt ended before it was kept"))
            raise
        finally:
            for each in ([] if entry is None else [entry]) + list(self._waiting):
                _end(each)
            self._waiting.clear()

    async def _note(self, notebook: Notebook, note: Note) -> None:
        if self._lost is not None:
            return
        try:
            await notebook.note(note)
        except LeaseLostError as error:
            self._lost = error
        except Exception as error:  # noqa: BLE001 -- whatever a database may raise; the work itself is not its matter
            self._tell_lost(note, error)

    def _tell_lost(self, note: Note, error: Exception) -> None:
        self._observe(NoteLost(self.consumer, self.event, note.what, error))


def _end(entry: _Entry) -> None:
    if not entry.noted.done():
        entry.noted.set_result(None)
