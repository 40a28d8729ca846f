"""What an event costs in CPU, and who spends it: in drains by the relay and by the limit, in turns."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks import cpu
from benchmarks.backlog import empty
from benchmarks.drains import LIMIT, RELAY, Backlog, task, warm_up
from benchmarks.figures import Figure, Size
from benchmarks.stand import Stand

TITLE = "CPU of an event, 400 B"
SECTION, UNIT = "cpu", "µs"
_MICROSECONDS = 1e6
_WARM_UP = 50_000
_PROGRAMS = {"relay": RELAY, "limit": LIMIT}


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Drain a backlog by each, so many times."""
    if not sys.platform.startswith("linux"):
        yield Figure(
            SECTION, "relay", UNIT, skipped=f"{sys.platform} does not tell what processes have used that ended"
        )
        return
    if size.quick:
        yield Figure(SECTION, "relay", UNIT, skipped="a quick run has no time for it")
        return
    warm_up(stand, _WARM_UP)
    found: dict[str, dict[str, list[float]]] = {who: {} for who in _PROGRAMS}
    for number in range(size.rounds):
        for who in reversed(_PROGRAMS) if number % 2 else _PROGRAMS:
            for where, value in _spent(stand, Backlog(size.events), _PROGRAMS[who]).items():
                found[who].setdefault(where, []).append(value)
    for who, places in found.items():
        for where, values in places.items():
            yield Figure(SECTION, f"{who}: {where}", UNIT, tuple(values))


def _spent(stand: Stand, backlog: Backlog, program: str) -> dict[str, float]:
    empty(stand.database_url)
    asked = replace(task(stand, backlog, program), meters=partial(cpu.meters, stand))
    used = asked.timed(stand).used
    return {
        where: _MICROSECONDS * seconds / backlog.rows for where, seconds in {"all": sum(used.values()), **used}.items()
    }
