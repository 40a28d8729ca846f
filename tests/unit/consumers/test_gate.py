"""The gate fails closed, and says so once for each look."""

from consumers.events import StoreAway, StoreBack
from consumers.gate import Gate
from consumers.testing import FakeClock


class Bench:
    """A gate, and what it did."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pauses: list[float] = []
        self.resumed = 0
        self.told: list[object] = []
        self.gate = Gate(
            consumer="billing",
            pause=self.pauses.append,
            resume=self._resume,
            observe=self.told.append,
            clock=self.clock,
            jitter=lambda _: 0.0,
        )

    def _resume(self) -> None:
        self.resumed += 1


async def test_the_first_failure_closes_it_and_those_beside_it_are_the_same_one() -> None:
    bench, error = Bench(), OSError("away")
    assert bench.gate.open
    assert [bench.gate.failed(error) for _ in range(3)] == [0.25, 0.25, 0.25]
    assert (bench.gate.open, bench.pauses) == (False, [0.25])
    assert bench.told == [StoreAway("billing", error, 0.25)]


async def test_each_further_look_doubles_the_pause_up_to_five_seconds() -> None:
    bench = Bench()
    for _ in range(8):
        await bench.clock.advance(bench.gate.failed(OSError("away")))
    assert bench.pauses == [0.25, 0.5, 1, 2, 4, 5, 5, 5]


async def test_the_first_answer_opens_it_says_how_long_it_was_and_begins_anew() -> None:
    bench = Bench()
    bench.gate.failed(OSError("away"))
    await bench.clock.advance(3)
    bench.gate.failed(OSError("away"))
    bench.gate.worked()
    bench.gate.worked()
    assert (bench.gate.open, bench.resumed) == (True, 1)
    assert bench.told[-1] == StoreBack("billing", 3.0)
    assert bench.gate.failed(OSError("again")) == 0.25


async def test_an_answer_while_it_is_open_is_nothing() -> None:
    bench = Bench()
    bench.gate.worked()
    assert (bench.resumed, bench.told) == (0, [])
