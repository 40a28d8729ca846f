"""What a run has found is kept, and comes back as it was."""

import json
from dataclasses import replace
from pathlib import Path

from benchmarks import report, tables
from benchmarks.figures import Figure
from benchmarks.ratios import CLAIMS, PEERS, Named, judged
from benchmarks.record import Run, latest, read
from tests.support.benchmarks import RUN


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every value of every figure, what was skipped, and what the claims came to."""
    RUN.store(tmp_path / "results" / "latest.json")

    assert latest(tmp_path / "results" / "latest.json") == RUN


def test_the_order_of_the_file_is_that_of_the_run() -> None:
    """So two results can be compared by eye."""
    found = json.loads(RUN.text())

    assert list(found) == ["environment", "figures", "ratios", "later"]
    assert list(found["figures"][0]) == ["section", "name", "unit", "values", "skipped"]
    assert read(RUN.text()).text() == RUN.text()


def test_the_latest_results_can_be_read() -> None:
    """They are in the repository, and name neither a host nor a path."""
    run = latest()

    assert run.figures
    assert "/home/" not in run.text()
    assert run.environment.commit != "unknown"


def test_the_latest_run_has_what_it_was_asked_for() -> None:
    """Each section has figures, and what is claimed finds those that it is about."""
    run = latest()
    asked = {*run.environment.sections, *(name for part in run.later for name in part.sections)}

    assert asked == {figure.section for figure in run.figures}
    found = {f"{figure.section}: {figure.name}" for figure in run.figures}
    wanted = {str(claim.of) for claim in CLAIMS} | {
        str(claim.over) for claim in CLAIMS if isinstance(claim.over, Named)
    }
    assert {name for name in wanted if name.startswith(tuple(f"{section}:" for section in asked))} <= found
    assert [ratio.name for ratio in run.ratios] == [claim.name for claim in CLAIMS]


def test_a_section_that_is_measured_again_takes_its_own_place_alone() -> None:
    """With its environment; what was found of the others is as it was, and what is claimed is judged anew."""
    slow = [Figure("peers", "relay", "events/s", (300.0,)), Figure("peers", "slow (Python)", "events/s", (3_000.0,))]
    part = Run(replace(RUN.environment, sections=("peers",), commit="def1234567"), slow, judged(slow))

    run = RUN.renewed(part)
    again = run.renewed(part)

    assert run.of("peers") == slow
    assert run.of("latency") == RUN.of("latency")
    assert [ratio for ratio in run.ratios if ratio.of == "peers: relay"] == [
        ratio for ratio in part.ratios if ratio.of == "peers: relay"
    ]
    assert (run.environment, list(run.later)) == (RUN.environment, [part.environment])
    assert again == run
    assert "| later, peers | 2026-01-02 03:04 UTC, full, commit def1234567 |" in tables.ran(run)


def test_figures_are_compared_within_a_section() -> None:
    """Those of two sections were not taken in turns, and may be of two runs."""
    assert {claim.of.section == getattr(claim.over, "section", PEERS) for claim in CLAIMS if claim.over} == {True}


def test_the_terminal_shows_every_value() -> None:
    """And in their place the reason why there are none."""
    shown = "\n".join(map(report.line, RUN.figures))

    assert "100,000     20%  events/s      110,000  90,000  100,000" in shown
    assert "skipped: no <node> & no npm" in shown


def test_the_page_shows_the_same() -> None:
    """As tables, whose cells a bar in a name does not break."""
    assert "| 400 B | 100,000 | 20% | events/s | 110,000 · 90,000 · 100,000 |" in tables.section("drain", RUN)
    assert "| pg-boss (Node) | | | | skipped: no <node> & no npm |" in tables.section("peers", RUN).replace("\\", "")
    assert tables.section("growth", RUN) == "The latest run has not measured this."
    assert "| resident memory, 9 MB rows | ≤ 400 MB | | | not measured: without memory" in tables.claims(RUN).replace(
        "  ", " "
    )
    assert "| ≥ 2.5 | 10 | 10 to 10 | reached: without pg-boss (Node) | peers: relay over peers: slow" in tables.claims(
        RUN
    )


def test_the_header_says_what_ran() -> None:
    """With the broker, and whether the code was that of the commit."""
    said = report.header(RUN.environment)

    assert "abc1234567, with changes that are not committed" in said
    assert "the emulator of relay.dev" in said
