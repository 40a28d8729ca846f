"""What comes of waiting for a delivery."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ready:
    """It is done; `result` is what its handler has returned, None where it skipped it or returned nothing."""

    result: Any


@dataclass(frozen=True, slots=True)
class Pending:
    """It is not at its end yet; asking again makes sense after so many seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It has failed for good. Code and reason are the consumer's own words, for operators and not for its clients."""

    code: str
    reason: str


Answer = Ready | Pending | Failed
