"""Artifacts: files that a handler makes once, whatever happens, and that are never taken for whole when they are not.

written to artifact.path, in the scratch directory  →  on the disk, renamed  →  uploaded  →  measured  →  its manifest

Where an attempt before has come to the end of that, `needed` is False, and there is nothing to do.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from consumers.crossing import in_loop, refuse_in_loop
from consumers.diary import Diary
from consumers.errors import TransientError
from consumers.events import ArtifactReused, ArtifactUploaded
from consumers.notes import Reused, Uploaded
from consumers.scratch import Scratch
from consumers.storage.manifest import Whole
from consumers.storage.output import seal
from consumers.storage.store import ArtifactStore, name_of
from consumers.storage.target import Published

__all__ = ["Artifact", "ArtifactStore", "Run"]

# Calls in a thread, and answers with its future; RuntimeError where there is no thread to be had.
Run = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]
_T = TypeVar("_T")
# Without its name: in a failure, what is quoted is left out, and would take the rest of the sentence with it.
_CALLED: Final = "ctx.artifact(…)"


class _StoppedError(Exception):
    """Nobody waits for the upload any more."""


class Artifact:
    """A file that is to be made, for `async with`, or for `with` in a handler's thread.

    Stored at the end of the block, unless that fails.
    """

    def __init__(
        self, name: str, store: "str | ArtifactStore", scratch: Callable[[], Scratch], diary: Diary, run: Run
    ) -> None:
        self.name = name_of(name)
        self._store = store if isinstance(store, ArtifactStore) else ArtifactStore(store)
        self._scratch = scratch
        self._diary = diary
        self._run = run
        self._stopped = threading.Event()
        self._folder = uuid4().hex[:12]
        self._path: Path | None = None
        self._whole: Whole | None = None
        self._began = 0.0
        self.needed = True
        """Whether it has to be made: False where it is whole already."""

    @property
    def location(self) -> str:
        """Where it is, or will be, as a URL."""
        return self._store.location(self.name)

    @property
    def path(self) -> Path:
        """Where to write it. What is written there although it is not needed goes nowhere."""
        if self._path is None:
            self._path = self._scratch().path(f"unfinished-{self._folder}/{self._base}")
        return self._path

    @property
    def bytes(self) -> int | None:
        """How large it is, once it is whole."""
        return None if self._whole is None else self._whole.bytes

    @property
    def sha256(self) -> str | None:
        """Of what is in it, once it is whole."""
        return None if self._whole is None else self._whole.sha256

    async def __aenter__(self) -> Self:
        """See whether it is there."""
        self._diary.check()
        found: Whole | None = await self._aside(self._look)
        if found is not None:
            await self._reuse(found)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> None:
        """Store it."""
        if error is None and self.needed:
            await self._finish(await self._aside(self._publish))

    def __enter__(self) -> Self:
        """See whether it is there, in a thread."""
        refuse_in_loop(self._diary.loop, _CALLED)
        self._diary.check()
        found = self._look()
        if found is not None:
            in_loop(self._diary.loop, lambda: self._reuse(found), _CALLED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, step: TracebackType | None
    ) -> None:
        """Store it, in a thread."""
        if error is None and self.needed:
            published = self._publish()
            in_loop(self._diary.loop, lambda: self._finish(published), _CALLED)

    @property
    def _base(self) -> str:
        return self.name.rpartition("/")[2]

    def _look(self) -> Whole | None:
        return self._store.target.look(self.name)

    def _publish(self) -> Published:
        self._check()
        finished = self._scratch().path(f"finished-{self._folder}/{self._base}")
        seal(self.path, finished, self.name)
        self._began = self._diary.clock.monotonic()
        return self._store.target.publish(self.name, finished, self._check)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError

    async def _reuse(self, whole: Whole) -> None:
        self.needed, self._whole = False, whole
        diary = self._diary
        diary.tell(ArtifactReused(diary.consumer, diary.event, self.name, whole.bytes))
        await diary.write(Reused(self.name, self.location, whole.bytes, whole.sha256))

    async def _finish(self, published: Published) -> None:
        whole, diary = published.whole, self._diary
        if not published.ours:
            await self._reuse(whole)
            return
        self.needed, self._whole = False, whole
        seconds = diary.clock.monotonic() - self._began
        diary.tell(ArtifactUploaded(diary.consumer, diary.event, self.name, whole.bytes, seconds))
        await diary.write(Uploaded(self.name, self.location, whole.bytes, whole.sha256))

    async def _aside(self, call: Callable[[], _T]) -> _T:
        """Call in a thread. Where we are cancelled meanwhile, the upload goes no further than it has to."""
        try:
            future = self._run(call)
        except RuntimeError as error:
            raise TransientError(f"no thread for the artifact: {error}", "NO_THREAD") from error
        try:
            answer: _T = await future
        except asyncio.CancelledError:
            self._stopped.set()
            raise
        return answer
