"""How much memory a relay holds: after its start, over a backlog, and with the largest rows among small ones."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import backlog
from benchmarks.figures import Figure, Size
from benchmarks.running import Memory, at_rest, relay
from benchmarks.stand import Stand

TITLE = "Resident memory of a relay"
SECTION, UNIT = "memory", "MB"
_BACKLOG_BYTES, _SMALL_BYTES, _LARGE_BYTES = 400, 100, 9_000_000
# Of the largest rows each stands among so many small ones, all of which one claim takes.
_SMALL_AMONG, _LARGE_ROWS, _QUICK_LARGE_ROWS = 200, 20, 4


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Let a new process drain each backlog; what is told is the most that it has held."""
    if not (Path("/proc") / "self" / "status").exists():
        yield Figure(SECTION, "resident", UNIT, skipped=f"there is no /proc on {sys.platform}")
        return

    def small() -> None:
        backlog.fill(stand.database_url, size.events, _BACKLOG_BYTES)

    def large() -> None:
        for _ in range(_QUICK_LARGE_ROWS if size.quick else _LARGE_ROWS):
            backlog.fill(stand.database_url, _SMALL_AMONG, _SMALL_BYTES)
            backlog.fill(stand.database_url, 1, _LARGE_BYTES)

    kinds: dict[str, Callable[[], None]] = {
        "resident, nothing to do": lambda: None,
        "resident, 400 B backlog": small,
        "resident, 9 MB rows among 100 B": large,
    }
    rounds = 1 if size.quick else size.rounds
    for name, fill in kinds.items():
        yield Figure(SECTION, name, UNIT, tuple(_most(stand, fill).most for _ in range(rounds)))


def _most(stand: Stand, fill: Callable[[], None]) -> Memory:
    url = stand.database_url
    backlog.empty(url)
    fill()
    backlog.settle(url)
    with stand.topic() as topic, relay(stand.environment, topic.name) as process:
        at_rest(url)
        return process.memory()
