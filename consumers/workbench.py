"""What a handler works with in one attempt: stages, progress, a scratch directory and artifacts."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from consumers.artifacts import Artifact, ArtifactStore, Run
from consumers.clock import Clock
from consumers.dedup.protocol import Begun
from consumers.diary import Diary
from consumers.events import ScratchLeft
from consumers.progress import Progress, Told
from consumers.received import Received
from consumers.scratch import Scratch, Scratches
from consumers.stages import Stage, Stages
from relay.kernel.observe import Observe

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What the workbenches of one consumer in one process share."""

    consumer: str
    loop: asyncio.AbstractEventLoop
    clock: Clock
    observe: Observe
    run: Run
    scratches: Scratches

    def bench(self, event: Received[Any], begun: Begun) -> "Workbench":
        """For one attempt at one event; `event` is what its handler takes."""
        return Workbench(self, event, begun)


class Workbench:
    """Ends with exactly one of `close` and `abandon`."""

    def __init__(self, shop: Workshop, event: Received[Any], begun: Begun) -> None:
        self._shop = shop
        self._begun = begun
        self._diary = Diary(
            consumer=shop.consumer,
            event=event,
            notebook=begun.notebook,
            completed=lambda: begun.completed,
            loop=shop.loop,
            clock=shop.clock,
            observe=shop.observe,
        )
        self._stages = Stages(self._diary)
        self._progress = Progress(self._diary)
        self._lock = threading.Lock()
        self._scratch: Scratch | None = None
        self._in_thread = False
        self._abandoned = False

    def stage(self, name: str) -> Stage:
        """A stage that begins with its block."""
        return self._stages.stage(name)

    def progress(self, percent: float) -> Told:
        """Say how far the handler is."""
        return self._progress.say(percent)

    @property
    def scratch(self) -> Scratch:
        """The directory of the attempt, made when it is first asked for."""
        with self._lock:
            if self._scratch is None:
                self._diary.check()
                self._scratch = self._shop.scratches.open(f"{self._begun.event.event_id}-{self._begun.attempt}")
            return self._scratch

    def artifact(self, name: str, store: str | ArtifactStore) -> Artifact:
        """A file that is to be made once."""
        return Artifact(name, store, lambda: self.scratch, self._diary, self._shop.run)

    def failed_at(self, error: BaseException, sentence: str) -> str:
        """The sentence about what came out of the handler, with the stage that it came out of."""
        stage = self._stages.of(error)
        return sentence if stage is None else f"failed at stage {stage}: {sentence}"

    def in_thread(self, call: Callable[[], _T]) -> _T:
        """Call the handler, in its thread."""
        with self.held():
            return call()

    @contextmanager
    def held(self) -> Iterator[None]:
        """While a thread works with it. Where it is abandoned there, the thread is the last to leave."""
        with self._lock:
            self._in_thread = True
        try:
            yield
        finally:
            with self._lock:
                self._in_thread = False
                last = self._abandoned
            if last:
                self._remove()

    async def close(self) -> None:
        """The handler has ended: its last notes are kept, and its directory is removed."""
        self._stages.forget()
        await self._diary.close()
        if self._scratch is not None:
            try:
                removal = self._shop.run(self._remove)
            except RuntimeError:  # there is no thread to be had
                self._remove()
            else:
                await removal

    def abandon(self) -> None:
        """Nobody waits for the handler any more. While it runs in its thread, it keeps its directory."""
        with self._lock:
            self._abandoned = True
            busy = self._in_thread
        if not busy:
            self._remove()

    def _remove(self) -> None:
        with self._lock:
            scratch, self._scratch = self._scratch, None
        if scratch is None:
            return
        try:
            scratch.remove()
        except OSError as error:
            self._diary.tell_from_anywhere(ScratchLeft(self._diary.consumer, self._diary.event, error))
