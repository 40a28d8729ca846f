"""A delivery's history in memory, and consumers whose deliveries have one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from consumers import Consumer
from consumers.dedup.none import NoDedup
from consumers.dedup.protocol import Begun
from consumers.delivery import Delivery
from consumers.notes import Note, Progressed, StageBegan, StageEnded
from consumers.received import Received


class Book:
    """Keeps notes; may be slow, refuse, or find the delivery lost."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.fault: Exception | None = None
        self.open = asyncio.Event()
        """Nothing is kept while it is not set."""
        self.open.set()
        self.busy = 0
        self.most_at_once = 0

    async def note(self, note: Note) -> None:
        """Keep it."""
        self.busy += 1
        self.most_at_once = max(self.most_at_once, self.busy)
        try:
            await self.open.wait()
            await asyncio.sleep(0)
            if self.fault is not None:
                raise self.fault
            self.notes.append(note)
        finally:
            self.busy -= 1

    @property
    def percents(self) -> list[float]:
        """The progress that was noted."""
        return [note.percent for note in self.notes if isinstance(note, Progressed)]

    @property
    def stages(self) -> list[str]:
        """The stages, and how each ended."""
        return [
            f"{note.name} {note.code or 'ok'}" if isinstance(note, StageEnded) else f"{note.name}…"
            for note in self.notes
            if isinstance(note, StageBegan | StageEnded)
        ]


def keep_history(monkeypatch: pytest.MonkeyPatch, seen: list[Begun] | None = None) -> Book:
    """Where what consumers without deduplication handle from now on is noted."""
    book, begin = Book(), NoDedup.begin

    async def begun(self: NoDedup, event: Received[Any], delivery: Delivery) -> Begun:
        answer = await begin(self, event, delivery)
        answer.notebook = book
        if seen is not None:
            seen.append(answer)
        return answer

    monkeypatch.setattr(NoDedup, "begin", begun)
    return book


def consumer_of(handler: Callable[..., Any], **how: Any) -> Consumer:
    """A consumer of events of type `a`, which keeps nothing in Redis."""
    consumer = Consumer("media", dedup="none", **how)
    consumer.on("a")(handler)
    return consumer
