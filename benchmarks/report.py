"""A run as one reads it: in the terminal while it goes on."""

from collections.abc import Iterable, Sequence

from benchmarks import environment
from benchmarks.environment import Environment
from benchmarks.figures import Figure
from benchmarks.ratios import Ratio

_WIDTHS = (34, 12, 8, 14)
_FEW = 100  # below it, what is after the point is told


def header(ran: Environment) -> str:
    """What ran, a line each."""
    return "\n".join(f"{name:<10}{value}" for name, value in environment.lines(ran))


def heading(title: str) -> str:
    """Above the figures of a section."""
    name, median, spread, unit = _WIDTHS
    return f"\n{title}\n{'':<{name}}{'median':>{median}}{'spread':>{spread}}  {'unit':<{unit}}values"


def line(figure: Figure) -> str:
    """A figure, or why there is none."""
    name, median, spread, unit = _WIDTHS
    if not figure.values:
        return f"{figure.name:<{name}}{'skipped':>{median}}: {figure.skipped}"
    values = "  ".join(map(number, figure.values))
    shown = f"{number(figure.median):>{median}}{figure.spread:>{spread}.0%}  {figure.unit:<{unit}}"
    return f"{figure.name:<{name}}{shown}{values}"


def verdicts(ratios: Iterable[Ratio]) -> str:
    """What the claims came to, a line each."""
    return "\n".join(["\nWhat is claimed", *map(str, ratios)])


def closing(ratios: Sequence[Ratio], seconds: float) -> str:
    """The last line: how many claims hold, and how long it took to find out."""
    told = [ratio for ratio in ratios if ratio.rounds]
    reached, missing = sum(ratio.verdict.reached for ratio in told), len(ratios) - len(told)
    left = f", {missing} not measured" if missing else ""
    return f"\n{reached} of {len(told)} reached{left}, in {seconds / 60:.1f} minutes"


def number(value: float) -> str:
    """A value as exact as it is worth."""
    return f"{value:,.0f}" if abs(value) >= _FEW else f"{value:,.3g}"
