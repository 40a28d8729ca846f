"""Measures everything, or some of it: `python -m benchmarks [--quick] [--only drain,limit]`, or `make bench`."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg

from benchmarks import environment, report
from benchmarks.contest import ContestError
from benchmarks.figures import Figure, Section, Size
from benchmarks.ratios import judged
from benchmarks.record import LATEST, Run, latest
from benchmarks.sections import NAMES, load
from benchmarks.stand import Stand, stand

FULL = Size(rounds=3, events=60_000, compared=5)
QUICK = Size(rounds=2, events=20_000, quick=True)
_BROKEN = "broken"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print as figures come, and keep what was found; a claim that does not hold is told, not an error."""
    asked = _parser().parse_args(arguments)
    size = QUICK if asked.quick else FULL
    began = time.monotonic()
    sections = {name: load(name) for name in asked.only}
    with stand() as servers:
        ran = environment.read(servers, size, asked.only)
        print(report.header(ran), flush=True)
        figures = [figure for name in sections for figure in _measured(name, sections[name], servers, size)]
        ran = replace(ran, calm=str(servers.calm))
    ratios = judged(figures)
    print(report.verdicts(ratios), report.closing(ratios, time.monotonic() - began), sep="\n")
    run, whole = Run(ran, figures, ratios), asked.only == NAMES
    if asked.keep or (whole and not size.quick):
        (run if whole else latest().renewed(run)).store()
        print(f"kept in {LATEST.relative_to(environment.ROOT)}; make docs brings it to docs/performance.md")
    return 1 if any(figure.skipped.startswith(_BROKEN) for figure in figures) else 0


def _measured(name: str, section: Section, servers: Stand, size: Size) -> Iterator[Figure]:
    print(report.heading(section.TITLE), flush=True)
    began = time.monotonic()
    try:
        for figure in section.measure(servers, size):
            print(report.line(figure), flush=True)
            yield figure
    except (ContestError, psycopg.Error, OSError) as error:
        # What others have found in the meantime is worth keeping.
        broken = Figure(name, "all that is left", "", skipped=f"{_BROKEN}: {error}")
        print(report.line(broken), flush=True)
        yield broken
    print(f"in {time.monotonic() - began:.0f} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the relay.")
    parser.add_argument("--quick", action="store_true", help="in minutes, and less exact")
    parser.add_argument("--only", type=_sections, default=NAMES, metavar="NAMES", help=f"some of {','.join(NAMES)}")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write benchmarks/results/latest.json, as a whole run that is not quick does; the sections of --only "
        "take the place of what it has of them",
    )
    return parser


def _sections(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, text.split(","))))
    if wrong := sorted(set(names) - set(NAMES)):
        raise argparse.ArgumentTypeError(f"no section is called {', '.join(wrong)}; there are {', '.join(NAMES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
