"""How latencies become figures, and when a run says nothing."""

import pytest

from benchmarks.contest import ContestError
from benchmarks.emitter import connections
from benchmarks.sections.latency import Pace, figures, quantile, quantiles

PACE = Pace(100, 3)
BEGAN = 5_000_000_000
MS = 1_000_000


def run(late_ms: float = 0.0) -> tuple[dict[str, int], dict[str, int]]:
    """Commits at this pace, and answers: of event n after n / 10 ms."""
    committed = {str(n): BEGAN + n * 10 * MS + round(late_ms * MS) for n in range(300)}
    return committed, {number: moment + int(number) * MS // 10 for number, moment in committed.items()}


def test_the_first_second_is_not_counted() -> None:
    """200 events are left, which took 10 to 30 ms."""
    found = quantiles(*run(), BEGAN, PACE)
    assert found["p50"] == pytest.approx(20.0)


def test_a_quantile_has_some_events_beyond_it() -> None:
    """Else it is what happened to one of them."""
    assert quantile(range(600), 0.99) == 594
    assert quantile(range(500), 0.99) == "500 events are too few"


def test_an_emitter_that_is_late_is_told_in_words() -> None:
    """What it stored came at another pace than the one that the figure is about."""
    (figure, *_) = figures("latency", "relay 100/s", [quantiles(*run(late_ms=500), BEGAN, PACE)])
    assert (figure.name, figure.values) == ("relay 100/s p50", ())
    assert figure.skipped.startswith("the emitter did not hold the pace: 8")


def test_an_event_that_was_never_published_is_an_error() -> None:
    """No figure hides it."""
    committed, acked = run()
    del acked["299"]
    with pytest.raises(ContestError, match="1 of 300 events were marked"):
        quantiles(committed, acked, BEGAN, PACE)


def test_every_round_is_a_value_of_its_figure() -> None:
    """Three figures; two have too few events."""
    found = list(figures("latency", "relay 100/s", [quantiles(*run(), BEGAN, PACE)] * 3))
    assert [len(figure.values) for figure in found] == [3, 0, 0]


@pytest.mark.parametrize(("rate", "lanes"), [(10, 1), (200, 2), (2_000, 16)])
def test_a_high_rate_is_stored_over_many_connections(rate: int, lanes: int) -> None:
    """Each commit waits for the disk."""
    assert connections(rate) == lanes
