"""What the kernel runs, what it asks of it, and what it is told afterwards."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from relay.kernel.backoff import Delay


class Next(Enum):
    """What a runner wants after a pass."""

    AGAIN = "again"  # work is left: at once
    IDLE = "idle"  # nothing is due: after the idle delay, or a wake-up
    BACK_OFF = "back_off"  # work is left that cannot be done now


@dataclass(frozen=True, slots=True)
class Report:
    """What one call of `run_once` did."""

    processed: int = 0
    updated: int = 0
    skipped: int = 0
    errors: int = 0
    next: Next = Next.IDLE
    due: bool = True
    """Whether there was a time for it at all: a job waits for its slot."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one call of `run_once` may do; a runner asks between two units of work."""

    deadline: float
    monotonic: Callable[[], float]
    stopping: asyncio.Event
    items: int | None = None

    def spent(self, processed: int) -> bool:
        """No further unit of work may begin."""
        return (
            self.stopping.is_set()
            or self.monotonic() >= self.deadline
            or (self.items is not None and processed >= self.items)
        )


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a supervised loop waits after each kind of pass. Defaults: every runner but publish."""

    busy: float = 0.25
    idle: Delay = field(default_factory=lambda: Delay(first=1, most=30, jitter=0.5))
    error: Delay = field(default_factory=lambda: Delay(first=30, most=30, jitter=2))


class Runner(Protocol):
    """One kind of work, cut into passes."""

    @property
    def name(self) -> str:
        """How settings, logs and reports call it."""
        ...

    @property
    def pace(self) -> Pace:
        """How long its loop waits between passes."""
        ...

    async def run_once(self, budget: Budget) -> Report:
        """Do what is due, within the budget. Cancellation must end it, and leave nothing half-done."""
        ...

    async def close(self) -> None:
        """Let go of connections; no pass is under way."""
        ...
