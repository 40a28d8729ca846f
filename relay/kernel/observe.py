"""What happened, as values: logs, metrics and tests listen to the same ones."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from relay.kernel.runner import Report

# Takes any of the frozen event objects that a step on the road emits; must not block and must not raise.
Observe = Callable[[object], None]


def to_all(*listeners: Observe) -> Observe:
    """One Observe for all listeners, which keeps the promise not to raise even where a listener breaks it.

    A full disk under the log must not stop the work. What a listener raises goes to the standard library's
    logging, which never raises; the other listeners hear the event all the same.
    """

    def observe(event: object) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception:  # a listener may fail in any way; see above
                logging.getLogger(__name__).exception("a listener failed on %s", type(event).__name__)

    return observe


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
class LoopDied:
    """A runner's loop ended by an error, and with it everything ends."""

    runner: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class CloseFailed:
    """A runner did not let go of its connections as it should; its work had ended before."""

    runner: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ShutdownBegan:
    """The process was asked to stop; what is in flight may finish within the soft timeout."""

    reason: str
    soft_timeout: float


@dataclass(frozen=True, slots=True)
class ShutdownEnded:
    """The end; `abandoned` names the runners whose pass had to be cancelled, or that did not close."""

    abandoned: tuple[str, ...]
    seconds: float
