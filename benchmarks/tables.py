"""The tables of docs/performance.md, from the latest run."""

from collections.abc import Iterable

from benchmarks import environment
from benchmarks.figures import Figure
from benchmarks.ratios import Ratio
from benchmarks.record import Run, latest
from benchmarks.report import number


def ran(run: Run | None = None) -> str:
    """What ran."""
    run = run or latest()
    lines = environment.lines(run.environment)
    for part in run.later:
        lines += [(f"later, {', '.join(part.sections)}", f"{part.date}, {part.size}, commit {part.commit}")]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in lines)])


def section(name: str, run: Run | None = None) -> str:
    """The figures of a section."""
    figures = [figure for figure in (run or latest()).figures if figure.section == name]
    if not figures:
        return "The latest run has not measured this."
    return "\n".join(["| | median | spread | unit | values |", "|---|--:|--:|---|---|", *map(_row, figures)])


def claims(run: Run | None = None) -> str:
    """What is claimed, and what was reached."""
    ratios: Iterable[Ratio] = (run or latest()).ratios
    head = ["| what | wanted | median | least to greatest | | figures |", "|---|---|--:|--:|---|---|"]
    return "\n".join([*head, *map(_claim, ratios)])


def _row(figure: Figure) -> str:
    if not figure.values:
        return f"| {_cell(figure.name)} | | | | skipped: {_cell(figure.skipped)} |"
    values = " · ".join(map(number, figure.values))
    return f"| {_cell(figure.name)} | {number(figure.median)} | {figure.spread:.0%} | {figure.unit} | {values} |"


def _claim(ratio: Ratio) -> str:
    missing = f": without {_cell(ratio.missing)}" if ratio.missing else ""
    figures = " over ".join(filter(None, (ratio.of, ratio.over)))
    cells = (ratio.name, ratio.wanted, ratio.median, ratio.range, f"{ratio.verdict}{missing}", _cell(figures))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
