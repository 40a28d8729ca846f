"""How fast a backlog goes out: by size, by keys, by relays, in turns with the limit of this machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.drains import LIMIT, RELAY, UNIT, Backlog, drain, warm_up
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand

TITLE = "Draining a backlog"
_WARM_UP, _QUICK_WARM_UP = 100_000, 50_000
_ROUNDS = 3  # at least, also in a quick run: a drain is what the machine disturbs most
_DEEP = 100  # rows that a key has at least, where keys are deep


@dataclass(frozen=True)
class Variant:
    """One way in which a backlog is drained."""

    name: str
    size: int = 400
    keys: int = 0
    program: str = RELAY
    processes: int = 1

    def measured(self, stand: Stand, events: int) -> Callable[[], float]:
        """What takes one value."""
        rows = max(events, self.keys * _DEEP)
        return partial(drain, stand, Backlog(rows, self.size, self.keys), self.program, self.processes)


_UNORDERED = (Variant("limit, 400 B", program=LIMIT), Variant("400 B"))
_DEEP_KEYS = Variant("400 B, 1,000 keys", keys=1_000)

QUICK: Sequence[Sequence[Variant]] = ((*_UNORDERED, _DEEP_KEYS),)
# Those of a line take turns, since they are compared.
FULL: Sequence[Sequence[Variant]] = (
    (Variant("limit, 100 B", size=100, program=LIMIT), Variant("100 B", size=100)),
    (
        *_UNORDERED,
        *(Variant(f"400 B, {number} relays", processes=number) for number in (2, 4)),
        Variant("400 B, 10 keys", keys=10),
        _DEEP_KEYS,
    ),
    (Variant("limit, 4 KB", size=4_096, program=LIMIT), Variant("4 KB", size=4_096)),
)


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Drain each variant's backlog so many times."""
    for compared in QUICK if size.quick else FULL:
        warm_up(stand, _QUICK_WARM_UP if size.quick else _WARM_UP)
        kinds = {variant.name: variant.measured(stand, size.events) for variant in compared}
        rounds = size.most_rounds if set(_UNORDERED) <= set(compared) else size.rounds
        for name, values in in_turns(max(_ROUNDS, rounds), kinds).items():
            yield Figure("drain", name, UNIT, values)
