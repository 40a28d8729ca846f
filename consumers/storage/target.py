"""What is asked of a place for artifacts. Everything here blocks: it is called in threads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from consumers.storage.manifest import Whole

# Raises where the upload is to go no further.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Published:
    """The artifact is whole; `ours` is whether it is the file that was to be published, or one that came before it."""

    whole: Whole
    ours: bool


class Target(Protocol):
    """Keeps artifacts by their names."""

    def look(self, name: str) -> Whole | None:
        """The artifact, if it is there and whole."""
        ...

    def publish(self, name: str, file: Path, check: Check) -> Published:
        """Put the file there, and its manifest behind it. Whenever it is killed, no half of it counts as whole."""
        ...
