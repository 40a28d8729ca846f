"""Which deliveries an operator means."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from uuid import UUID

from consumers.errors import ConfigurationError

_LARGEST_ID = 2**63 - 1
_SHOWN = 100


class State(Enum):
    """How a delivery stands, as people are told: what was given up is no failure that waits for them."""

    PENDING = "pending"
    PROCESSING = "processing"
    SENT = "sent"
    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """All of these together; what is left open fits everything. Ids and event ids are names: either of them will do."""

    ids: Sequence[int] = ()
    event_ids: Sequence[UUID] = ()
    consumer: str | None = None
    states: frozenset[State] = field(default_factory=frozenset)
    event_types: Sequence[str] = ()
    """Each as it is, or the beginning of one and a `*`."""
    ordering_key: str | None = None
    recipient: str | None = None
    codes: Sequence[str] = ()
    error: str | None = None
    """A part of it, in letters of either case."""
    since: datetime | None = None
    until: datetime | None = None
    """When they ended; of what has not ended, when they came."""

    @property
    def named(self) -> bool:
        """Whether deliveries are called by their names."""
        return bool(self.ids or self.event_ids)


def names_of(words: Sequence[str]) -> tuple[list[int], list[UUID]]:
    """Ids and event ids, as they are given to a command. Raises ConfigurationError for what is neither."""
    ids: dict[int, None] = {}
    event_ids: dict[UUID, None] = {}
    for word in words:
        if word.isascii() and word.isdecimal() and len(word) < _SHOWN and int(word) <= _LARGEST_ID:
            ids[int(word)] = None
            continue
        try:
            event_ids[UUID(word)] = None
        except ValueError:
            raise ConfigurationError(f"{word[:_SHOWN]!r} is neither the id of a delivery nor an event_id") from None
    return list(ids), list(event_ids)
