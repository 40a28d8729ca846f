"""The history of deliveries while they are handled: many notes travel in one statement."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from consumers.gather import Gather
from consumers.inbox.rows import Owned
from consumers.inbox.table import MOST_ROWS, Table
from consumers.notes import Note, Progressed, StageBegan, StageEnded
from idempotency import LeaseLostError
from relay.postgres.statements import numbers, numbers_or_null, texts


@dataclass(frozen=True, slots=True)
class Entry:
    """A note, and whose it is."""

    owned: Owned
    note: Note

    @property
    def stage(self) -> str | None:
        """The stage that the delivery is in after it; None where it says nothing of that."""
        match self.note:
            case StageBegan(name):
                return name
            case StageEnded(current=current):
                return current or ""
            case _:
                return None


class Notebooks:
    """Those of one consumer in this process."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._entries: Gather[Entry, bool] = Gather(self._note_many, most=MOST_ROWS, at_once=1)

    def of(self, owned: Owned) -> "InboxNotebook":
        """That of one delivery."""
        return InboxNotebook(owned, self._entries)

    async def _note_many(self, entries: Sequence[Entry]) -> list[bool]:
        rows = await self._table.ask("note", _columns(entries))
        ours = {int(row[0]) for row in rows}
        return [entry.owned.id in ours for entry in entries]


@dataclass(frozen=True, slots=True)
class InboxNotebook:
    """The notebook of one delivery."""

    owned: Owned
    entries: Gather[Entry, bool]

    async def note(self, note: Note) -> None:
        """Keep it in the delivery's history, and what it says of stage and progress in its row."""
        if not await self.entries.ask(Entry(self.owned, note)):
            raise LeaseLostError(f"delivery {self.owned.id} is no longer this process's: its lease was over")


def _columns(entries: Sequence[Entry]) -> dict[str, object]:
    progresses = [each.note.percent if isinstance(each.note, Progressed) else None for each in entries]
    return {
        "ids": numbers(each.owned.id for each in entries),
        "tokens": texts([each.owned.token for each in entries]),
        "whats": texts([each.note.what for each in entries]),
        "details": texts([json.dumps(each.note.detail) for each in entries]),
        "staged": texts(["f" if each.stage is None else "t" for each in entries]),
        "stages": texts([each.stage or "" for each in entries]),
        "progresses": numbers_or_null(progresses),
    }
