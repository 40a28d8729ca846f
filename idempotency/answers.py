"""What the store answers: closed sums of frozen values, to be told apart by `match`."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

Result: TypeAlias = bytes | str | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The event is ours until `deadline`, on the manager's monotonic clock (`time.monotonic` unless it got another).

    The deadline was taken before the request was sent, so the server never gives the event to anybody else before
    it. `attempt` counts the claims of the event, from 1, without those that were given back uncounted.
    """

    consumer: str
    event_id: UUID
    token: str = field(repr=False)
    attempt: int
    deadline: float
    lease: timedelta
    fingerprint: str | None = None
    key: str = field(default="", repr=False)

    def is_held(self, now: float) -> bool:
        """Whether the holder may still believe that it holds, at this reading of the manager's clock."""
        return now < self.deadline


@dataclass(frozen=True, slots=True)
class InProgress:
    """Somebody else holds the event, or it rests: to be asked for again after `retry_after` (the server's clock)."""

    retry_after: timedelta


@dataclass(frozen=True, slots=True)
class Done:
    """The event was processed before. `result` is what its completion kept; a bare mark has none."""

    result: Result = None


@dataclass(frozen=True, slots=True)
class Marked:
    """The event is marked as processed, by this very call; `unmark` gives it back."""

    consumer: str
    event_id: UUID
    token: str = field(repr=False)
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Locked:
    """A lock is ours until `deadline`, on the manager's monotonic clock."""

    name: str
    token: str = field(repr=False)
    deadline: float
    lease: timedelta
    key: str = field(default="", repr=False)

    def is_held(self, now: float) -> bool:
        """Whether the holder may still believe that it holds, at this reading of the manager's clock."""
        return now < self.deadline


ClaimAnswer: TypeAlias = Claimed | InProgress | Done
MarkAnswer: TypeAlias = Marked | InProgress | Done
