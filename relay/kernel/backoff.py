"""How long to wait: a delay that grows with every repetition, and jitter so that many do not move as one."""

import math
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import backoff

Jitter = Callable[[float], float]


def uniform(seconds: float) -> float:
    """Between nothing and the whole jitter."""
    return random.uniform(0, seconds)  # noqa: S311 -- spreads load, protects no secret


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay from `first` seconds doubling to `most`, plus up to `jitter` on each."""

    first: float
    most: float
    jitter: float


@dataclass(frozen=True, slots=True)
class Retry:
    """How long something waits before its next attempt: `base` seconds, doubling to `most`, jitter included."""

    base: float
    most: float
    jitter: float

    def delay(self, attempt: int, jitter: Jitter = uniform) -> float:
        """The seconds after attempt number `attempt`, which counts from 1."""
        return float(min(self.most, self._doubled(attempt) + jitter(self.jitter)))

    def _doubled(self, attempt: int) -> float:
        try:
            return min(self.most, math.ldexp(self.base, max(0, attempt - 1)))
        except OverflowError:  # no float is that long; the longest delay is
            return self.most


class Backoff:
    """One run through a Delay; `reset` begins again."""

    def __init__(self, delay: Delay, jitter: Jitter = uniform) -> None:
        self._delay = delay
        self._jitter = jitter
        self._steps: Generator[Any, Any, None] | None = None

    def reset(self) -> None:
        """Begin again at the first delay."""
        self._steps = None

    def next(self) -> float:
        """The next delay, in seconds."""
        if self._steps is None:
            self._steps = backoff.expo(base=2, factor=self._delay.first, max_value=self._delay.most)
            next(self._steps)  # the generator's opening yield carries no delay
        return float(next(self._steps)) + self._jitter(self._delay.jitter)
