"""How far the walks over an inbox have come: each step is taken from where it was seen, or not at all."""

import json
from dataclasses import dataclass
from typing import Any

from consumers.inbox.session import Session


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a walk is."""

    name: str
    text: str
    """The position as the database writes it."""
    finished: bool = False
    age: float = 0.0
    """Seconds since it was written."""

    @property
    def position(self) -> dict[str, Any]:
        """What the text says."""
        read: dict[str, Any] = json.loads(self.text)
        return read


class Checkpoints:
    """Those of one consumer. Every method raises StoreUnavailableError where the inbox is away."""

    def __init__(self, session: Session, consumer: str) -> None:
        self._session = session
        self._consumer = consumer

    async def read(self, name: str) -> Checkpoint | None:
        """Where the walk of this name is; None where nobody has begun it."""
        found = await self._session.ask("checkpoint_read", self._named(name))
        return Checkpoint(name, found[0][0], bool(found[0][1]), float(found[0][2])) if found else None

    async def begin(self, name: str, position: dict[str, Any]) -> Checkpoint | None:
        """Begin a walk; None where somebody else has begun it meanwhile."""
        said = {**self._named(name), "position": written(position)}
        found = await self._session.ask("checkpoint_begin", said)
        return Checkpoint(name, found[0][0]) if found else None

    async def move(self, before: Checkpoint, position: dict[str, Any], *, finished: bool = False) -> Checkpoint | None:
        """Go on from there; None where somebody else has gone on meanwhile."""
        found = await self._session.ask("checkpoint_move", self.said(before, position, finished=finished))
        return Checkpoint(before.name, found[0][0], finished) if found else None

    def said(self, before: Checkpoint, position: dict[str, Any], *, finished: bool) -> dict[str, object]:
        """What a statement is told that moves it."""
        return {
            **self._named(before.name),
            "before": before.text,
            "position": written(position),
            "finished": finished,
        }

    def _named(self, name: str) -> dict[str, object]:
        return {"consumer": self._consumer, "name": name}


def written(position: dict[str, Any]) -> str:
    """A position as JSON. Raises ValueError or TypeError where it is none."""
    return json.dumps(position, allow_nan=False)
