"""How long to wait: a delay that grows with every repetition, and jitter so that many do not move as one."""

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
