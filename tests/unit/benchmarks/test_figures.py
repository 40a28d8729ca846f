"""Figures are the same thing measured several times, in turns with what it is compared with."""

import pytest

from benchmarks.figures import Figure, in_turns


def test_one_slow_round_moves_the_spread_and_not_the_median() -> None:
    """Which is why both are told."""
    figure = Figure("drain", "400 B", "events/s", (100.0, 40.0, 110.0))

    assert figure.median == 100.0
    assert figure.spread == pytest.approx(0.7)


def test_each_round_measures_all_of_them_after_an_unseen_one() -> None:
    """Nobody has all of the quiet minutes, and nobody always follows the same one."""
    calls: list[str] = []

    def take(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    taken = in_turns(2, {"a": lambda: take("a"), "b": lambda: take("b")}, warm=["a"])

    assert calls == ["a", "a", "b", "b", "a"]
    assert taken == {"a": (2.0, 5.0), "b": (3.0, 4.0)}
