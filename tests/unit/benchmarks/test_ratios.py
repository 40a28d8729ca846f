"""What is claimed is judged by figures of one run."""

import statistics

import pytest

from benchmarks.figures import Figure
from benchmarks.ratios import CLAIMS, BestPeer, Bound, Claim, Named, OfPackage, Verdict, Way, judged, paired, verdict

WANTED = Bound(Way.AT_LEAST, 0.9)
CLAIM = Claim("a backlog", WANTED, Named("drain", "400 B"), Named("drain", "limit, 400 B"))


def figure(name: str, *values: float, section: str = "drain") -> Figure:
    """One of events a second."""
    return Figure(section, name, "events/s", values)


def test_a_ratio_is_taken_round_by_round() -> None:
    """A round in which the machine was slow says as much as the others; the ratio of the medians would be 0.5."""
    one, other = figure("one", 90, 50, 9), figure("other", 100, 50, 10)

    assert statistics.median(paired(one, other)) == pytest.approx(0.9)


def test_rounds_that_do_not_belong_together_are_not_paired() -> None:
    """Where one of them could not be measured in each round, medians have to do."""
    assert paired(figure("one", 90, 50), figure("other", 100, 50, 10)) == (70 / 50,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (95, "reached: a backlog ≥ 0.9 (it is 0.95)"),
        (90, "reached: a backlog ≥ 0.9 (it is 0.9)"),
        (80, "not reached: a backlog ≥ 0.9 (it is 0.8)"),
    ],
)
def test_the_verdict_is_plain(value: float, said: str) -> None:
    """Whether it was reached comes first."""
    assert str(CLAIM.judge([figure("400 B", value), figure("limit, 400 B", 100)])) == said


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ((), Verdict.NOT_MEASURED),
        ((0.91, 0.92, 0.99), Verdict.REACHED),
        ((0.91, 0.89, 0.99), Verdict.REACHED_IN_NOISE),
        ((0.91, 0.89, 0.7), Verdict.NOT_REACHED_IN_NOISE),
        ((0.8, 0.89, 0.7), Verdict.NOT_REACHED),
    ],
)
def test_rounds_on_both_sides_of_a_bound_are_told(rounds: tuple[float, ...], said: Verdict) -> None:
    """The median decides; that another run might say the opposite is part of the verdict."""
    assert verdict(WANTED, rounds) is said


@pytest.mark.parametrize(
    ("way", "holds"),
    [(Way.AT_LEAST, [False, True, True]), (Way.AT_MOST, [True, True, False]), (Way.BELOW, [True, False, False])],
)
def test_a_bound_is_on_one_side(way: Way, holds: list[bool]) -> None:
    """Below it, at it, above it."""
    assert [Bound(way, 2.0).holds(value) for value in (1.0, 2.0, 3.0)] == holds


def test_what_was_skipped_is_named() -> None:
    """A claim without its figures is neither reached nor missed."""
    skipped = Figure("drain", "limit, 400 B", "events/s", skipped="there is no broker")
    ratio = CLAIM.judge([figure("400 B", 1), skipped])

    assert (ratio.rounds, ratio.verdict) == ((), Verdict.NOT_MEASURED)
    assert str(ratio) == "not measured: a backlog ≥ 0.9 (without drain: limit, 400 B)"


def test_the_best_peer_is_the_one_that_was_fastest_in_this_run() -> None:
    """The relay is not its own peer, one that was skipped is none, and a language narrows the choice."""
    figures = [
        figure("relay", 1_000, section="peers"),
        figure("a 1 (Node)", 300, section="peers"),
        figure("b 2 (Python)", 200, section="peers"),
        figure("c 3 (Python)", 100, section="peers"),
        Figure("peers", "d 4 (Python)", "events/s", skipped="not installed"),
    ]

    best, in_python, in_go = (BestPeer(language).find(figures) for language in ("", "Python", "Go"))

    assert best
    assert in_python
    assert (best.name, in_python.name, in_go) == ("a 1 (Node)", "b 2 (Python)", None)


def test_the_best_peer_of_some_is_told_as_such() -> None:
    """Among those that could not be measured may be a better one."""
    claim = Claim("a backlog", Bound(Way.AT_LEAST, 2.5), Named("peers", "relay"), BestPeer())
    skipped = Figure("peers", "b 2 (Python)", "events/s", skipped="not installed")

    ratio = claim.judge([figure("relay", 300, section="peers"), figure("a 1 (Node)", 100, section="peers"), skipped])

    assert str(ratio) == "reached: a backlog ≥ 2.5 (it is 3; without b 2 (Python))"
    assert ratio.over == "peers: a 1 (Node)"


def test_a_peer_is_found_in_whatever_version_it_was_measured() -> None:
    """By its package and by what the figure is about; what was skipped is missing."""
    wanted = OfPackage("inbox", "pgqueuer", "worked off")
    figures = [
        figure("pgqueuer 1.6.0, with storing", 2, section="inbox"),
        figure("pgqueuer-extra 1.6.0, worked off", 3, section="inbox"),
        figure("pgqueuer 1.6.0, worked off", 4, section="inbox"),
        figure("pgqueuer 1.6.0, worked off", 5, section="peers"),
    ]

    found = wanted.find(figures)

    assert found
    assert (found.values, wanted.missing(figures)) == ((4,), [])
    assert wanted.missing(figures[:2]) == ["inbox: pgqueuer, worked off"]


def test_a_value_of_its_own_needs_no_other() -> None:
    """Memory is told in megabytes, not in ratios."""
    claim = Claim("resident memory", Bound(Way.AT_MOST, 120, "MB"), Named("memory", "resident"))
    ratio = claim.judge([Figure("memory", "resident", "MB", (90.0, 80.0, 85.0))])

    assert str(ratio) == "reached: resident memory ≤ 120 MB (it is 85 MB, 80 to 90)"


def test_all_claims_are_judged_without_any_figure() -> None:
    """Each has a name of its own, and says what it lacks."""
    ratios = judged([])

    assert len({ratio.name for ratio in ratios}) == len(CLAIMS) == len(ratios)
    assert all(ratio.missing and ratio.verdict == "not measured" for ratio in ratios)
