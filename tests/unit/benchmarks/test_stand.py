"""What a measurement waits for before it, and looks at after it."""

from collections.abc import Callable

import pytest

from benchmarks import stand
from benchmarks.stand import Calm
from benchmarks.topic import Arrived


def process(percent: float) -> Callable[[int], object]:
    """One that takes so much of a core."""

    class Process:
        def __init__(self, _: int) -> None: ...

        def cpu_percent(self, _: float) -> float:
            return percent

    return Process


def test_an_emulator_that_does_not_come_to_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured nevertheless, and the run says how often."""
    calm = Calm()
    monkeypatch.setattr(stand, "_CALM_SECONDS", 0.0)

    for percent in (1.0, 90.0, 1.0):
        monkeypatch.setattr("psutil.Process", process(percent))
        calm.wait(1)

    assert str(calm) == "the emulator, before 2 of 3 measurements"


@pytest.mark.parametrize(
    ("arrived", "said"),
    [
        (Arrived(messages=20, events=20, incomplete=0, smallest=560, largest=565), ""),
        (Arrived(messages=0, events=0, incomplete=0, smallest=0, largest=0), ""),
        (Arrived(messages=20, events=1, incomplete=0, smallest=560, largest=565), "20 messages were of 1 events"),
        (Arrived(messages=20, events=20, incomplete=3, smallest=560, largest=565), "3 messages lacked attributes"),
        (
            Arrived(messages=20, events=20, incomplete=0, smallest=2, largest=565),
            "bodies had 2 to 565 bytes, with 400 of data",
        ),
    ],
)
def test_what_was_read_is_judged(arrived: Arrived, said: str) -> None:
    """Of different events, whole, and as large as what was stored."""
    assert arrived.faults(400) == said
