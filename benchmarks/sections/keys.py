"""Many keys with little in each: what is sent of a key is a request of its own, and a million events wait.

Not all of them are drained. Google's emulator has no room for more messages that wait for its slow subscription: with
some 230,000 of them it stops for longer than a request may take.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.drains import UNIT, Backlog, drain, warm_up
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand

TITLE = "Draining a backlog in which keys are many and shallow, 400 B"
SECTION = "keys"
_KEYS, _ROWS_A_KEY = 100_000, 10
_DRAINED = 100_000
_WARM_UP = 20_000


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Drain it so many times, each time into a new emulator: it has no room for two such backlogs."""
    name = f"{_KEYS:,} keys, {_ROWS_A_KEY} rows each"
    if size.quick:
        yield Figure(SECTION, name, UNIT, skipped="takes minutes")
        return
    kind = partial(_drained, stand, Backlog(_KEYS * _ROWS_A_KEY, keys=_KEYS, most=_DRAINED))
    yield Figure(SECTION, name, UNIT, in_turns(size.rounds, {name: kind})[name])


def _drained(stand: Stand, backlog: Backlog) -> float:
    warm_up(stand, _WARM_UP)
    return drain(stand, backlog)
