"""A run as a file that is kept: what ran, every value of every figure, and what the claims came to.

What is claimed is claimed of figures of one section, which are taken in turns. So a section that is measured again
takes the place of what the file had of it, with an environment of its own; the others stay as they are.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, Environment
from benchmarks.figures import Figure
from benchmarks.ratios import Ratio, Verdict, judged
from benchmarks.sections import NAMES

LATEST = ROOT / "benchmarks" / "results" / "latest.json"


@dataclass(frozen=True)
class Run:
    """All that one run has found."""

    environment: Environment
    figures: Sequence[Figure]
    ratios: Sequence[Ratio]
    later: Sequence[Environment] = ()  # of sections that were measured by themselves after that

    def of(self, section: str) -> list[Figure]:
        """The figures of a section that have values."""
        return [figure for figure in self.figures if figure.section == section and figure.values]

    def renewed(self, part: "Run") -> "Run":
        """This run, with what another one has found of some sections."""
        again = set(part.environment.sections)
        kept = [figure for figure in self.figures if figure.section not in again]
        figures = sorted([*kept, *part.figures], key=lambda figure: NAMES.index(figure.section))
        left = [(each, tuple(name for name in each.sections if name not in again)) for each in self.later]
        later = [replace(each, sections=sections) for each, sections in left if sections]
        return Run(self.environment, figures, judged(figures), (*later, part.environment))

    def text(self) -> str:
        """As JSON; two runs differ in what they found, and not in its order."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def store(self, path: Path = LATEST) -> None:
        """Keep it."""
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.text(), encoding="utf-8")


def read(text: str) -> Run:
    """What `Run.text` wrote."""
    found = json.loads(text)
    return Run(
        environment=_environment(found["environment"]),
        figures=tuple(Figure(**{**figure, "values": tuple(figure["values"])}) for figure in found["figures"]),
        ratios=tuple(
            Ratio(**{**ratio, "rounds": tuple(ratio["rounds"]), "verdict": Verdict(ratio["verdict"])})
            for ratio in found["ratios"]
        ),
        later=tuple(map(_environment, found["later"])),
    )


def latest(path: Path = LATEST) -> Run:
    """The run that the page tells of."""
    return read(path.read_text(encoding="utf-8"))


def _environment(found: dict[str, Any]) -> Environment:
    return Environment(**{**found, "sections": tuple(found["sections"])})
