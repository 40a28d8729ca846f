"""A run as a file that is kept: what ran, every value of every figure, and what the claims came to."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.environment import ROOT, Environment
from benchmarks.figures import Figure
from benchmarks.ratios import Ratio, Verdict

LATEST = ROOT / "benchmarks" / "results" / "latest.json"


@dataclass(frozen=True)
class Run:
    """All that one run has found."""

    environment: Environment
    figures: Sequence[Figure]
    ratios: Sequence[Ratio]

    def of(self, section: str) -> list[Figure]:
        """The figures of a section that have values."""
        return [figure for figure in self.figures if figure.section == section and figure.values]

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
        environment=Environment(**{**found["environment"], "sections": tuple(found["environment"]["sections"])}),
        figures=tuple(Figure(**{**figure, "values": tuple(figure["values"])}) for figure in found["figures"]),
        ratios=tuple(
            Ratio(**{**ratio, "rounds": tuple(ratio["rounds"]), "verdict": Verdict(ratio["verdict"])})
            for ratio in found["ratios"]
        ),
    )


def latest(path: Path = LATEST) -> Run:
    """The run that the page tells of."""
    return read(path.read_text(encoding="utf-8"))
