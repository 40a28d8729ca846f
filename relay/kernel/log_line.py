"""What documentation and tests know of a log line."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of line; `event`, `level` and `timestamp` are in each."""

    name: str
    levels: tuple[str, ...]
    when: str
    fields: tuple[str, ...]


def markdown(lines: Iterable[Line]) -> str:
    """Every line, as a Markdown table."""
    rows = (
        (f"`{line.name}`", " or ".join(line.levels), line.when, ", ".join(f"`{name}`" for name in line.fields))
        for line in lines
    )
    told = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(("| line | level | when | fields |", "|---|---|---|---|", *told)) + "\n"
