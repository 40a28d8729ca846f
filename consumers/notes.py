"""What is noted in a delivery's history while it is handled, and who keeps it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class StageBegan:
    """The handler is in this stage now."""

    what: ClassVar[str] = "stage"
    name: str

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        return {"stage": self.name}


@dataclass(frozen=True, slots=True)
class StageEnded:
    """The handler has left this stage; with a code it failed there."""

    what: ClassVar[str] = "stage_ended"
    name: str
    seconds: float
    code: str | None = None
    current: str | None = None
    """The stage that it is in now: the last one that was begun and goes on."""

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        told: dict[str, Any] = {"stage": self.name, "seconds": round(self.seconds, 3)}
        return told if self.code is None else {**told, "code": self.code}


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far the handler says that it is."""

    what: ClassVar[str] = "progress"
    percent: float
    """From 0 to 100."""

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        return {"percent": round(self.percent, 2)}


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An artifact is whole, and where it belongs."""

    what: ClassVar[str] = "uploaded"
    name: str
    location: str
    bytes: int
    sha256: str

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        return {"artifact": self.name, "location": self.location, "bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Reused:
    """An artifact was whole already: it was neither made nor uploaded again."""

    what: ClassVar[str] = "reused"
    name: str
    location: str
    bytes: int
    sha256: str

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        return {"artifact": self.name, "location": self.location, "bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Aborted:
    """The process ends without the handler, which goes on in its thread until then."""

    what: ClassVar[str] = "aborted:shutdown"

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        return {"left": "to the end of its lease"}


Note = StageBegan | StageEnded | Progressed | Uploaded | Reused | Aborted


class Notebook(Protocol):
    """Keeps the notes of one delivery. It is asked for one at a time, in the order in which they were made."""

    async def note(self, note: Note) -> None:
        """Keep it. Raises LeaseLostError (of `idempotency`) where the delivery is no longer ours."""
        ...
