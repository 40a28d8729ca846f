"""What was measured, as values: every figure several times, with its median and its spread."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.stand import Stand


@dataclass(frozen=True)
class Figure:
    """One line of the table: the same thing measured several times, in turns with what it is compared with."""

    section: str
    name: str
    unit: str
    values: tuple[float, ...] = ()
    skipped: str = ""  # why there is none, in words

    @property
    def median(self) -> float:
        """The one in the middle."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """How far the smallest and the greatest are apart, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Size:
    """How much is measured: of the whole benchmark, or of the quick one."""

    rounds: int  # how often each figure is taken
    events: int  # in the backlog of a drain
    quick: bool = False
    compared: int = 0  # how often those that are narrowly claimed are taken, where that is more often

    @property
    def most_rounds(self) -> int:
        """Of a figure in which a hundredth decides."""
        return max(self.rounds, self.compared)


class Section(Protocol):
    """One part of the benchmark: a module of `benchmarks.sections`."""

    TITLE: str

    def measure(self, stand: Stand, size: Size) -> Iterator[Figure]:
        """Measure; a figure is yielded as soon as all of its values are there."""
        ...


def in_turns(
    rounds: int, kinds: Mapping[str, Callable[[], float]], warm: Sequence[str] = ()
) -> dict[str, tuple[float, ...]]:
    """Take each figure so many times, one after the other in every round; those in `warm` once more before, unseen.

    Every other round goes the other way: nobody always follows the same one, and bears what that has left behind.
    """
    for name in warm:
        kinds[name]()
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name in reversed(list(kinds)) if number % 2 else kinds:
            taken[name].append(kinds[name]())
    return {name: tuple(values) for name, values in taken.items()}
