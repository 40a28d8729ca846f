"""One delivery on its way through this process."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any
from uuid import UUID

from consumers.clock import Timer
from consumers.dedup.protocol import Begun
from consumers.delivery import Delivery
from consumers.outcome import Dead, Invalid
from consumers.received import Subject

if TYPE_CHECKING:
    from consumers.flow import Line


class Cancelled(Enum):
    """Why a handler was cut short."""

    SHUTDOWN = auto()
    LEASE_LOST = auto()


@dataclass(slots=True, eq=False)
class Job:
    """A delivery, what is in it, and where it stands."""

    delivery: Delivery
    subject: Subject
    line: "Line"
    begun: Begun | None = None
    verdict: Dead | Invalid | None = None
    """What was decided and could not be carried out: the dead-letter topic was away."""
    attempts: int = 0
    """The attempt at which it was decided."""
    first_attempt_at: float = 0.0
    """In seconds since 1970; 0 where it was not in this process, or before the delivery was given back."""
    seen_at: float = 0.0
    """When this process received the delivery, in seconds since 1970."""
    looks: int = 0
    """How often it was found in progress elsewhere, in a row."""
    cut: Cancelled | None = None
    in_handler: bool = False
    entered: bool = False
    """Whether its handler has been called, for this claim."""
    read: bool = False
    """Whether the user's own code has had its data, and may have changed it."""
    since: float = 0.0
    """When its handler began, by the process's clock."""
    task: "asyncio.Task[Any] | None" = field(default=None, repr=False)
    timer: Timer | None = field(default=None, repr=False)
    due: float = 0.0
    """While it rests: when it is looked at again, by the process's clock."""

    @property
    def lane(self) -> "str | UUID":
        """What is worked on one at a time: its ordering key, or else the event itself."""
        return self.delivery.lane or self.delivery.ordering_key or self.subject.event_id or self.delivery.message_id

    def cancel(self, reason: Cancelled) -> bool:
        """Cut an asynchronous handler short. False where none runs: what it says is looked at when it has ended."""
        self.cut = self.cut or reason
        if not self.in_handler or self.task is None or self.line.in_thread:
            return False
        self.task.cancel()
        return True
