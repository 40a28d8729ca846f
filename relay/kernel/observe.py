"""What happened, as values: logs, metrics and tests listen to the same ones."""

from collections.abc import Callable
from dataclasses import dataclass

from relay.kernel.runner import Report

# Takes any of the frozen event objects that a step on the road emits; must not block and must not raise.
Observe = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class PassFinished:
    """A runner's pass came to its end."""

    runner: str
    report: Report
    seconds: float


@dataclass(frozen=True, slots=True)
class PassFailed:
    """A runner's pass raised; what it had begun was rolled back."""

    runner: str
    error: BaseException
    seconds: float


@dataclass(frozen=True, slots=True)
class PassSkipped:
    """The runner was still busy with the pass before."""

    runner: str


@dataclass(frozen=True, slots=True)
class ShutdownBegan:
    """The process was asked to stop; what is in flight may finish within the soft timeout."""

    reason: str
    soft_timeout: float


@dataclass(frozen=True, slots=True)
class ShutdownEnded:
    """Everything is closed; `abandoned` names the runners whose pass had to be cancelled."""

    abandoned: tuple[str, ...]
    seconds: float
