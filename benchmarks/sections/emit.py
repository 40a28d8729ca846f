"""What emitting an event costs beside a bare INSERT of the same row, driver by driver, with commits that last."""

from collections.abc import Iterator

from benchmarks import backlog
from benchmarks.contest import race
from benchmarks.figures import Figure, Size
from benchmarks.stand import Stand

TITLE = "Emitting: one event a transaction, and 1,000 in one statement"
SECTION, UNIT = "emit", "µs/event"
DRIVERS = ("psycopg", "psycopg2", "asyncpg", "SQLAlchemy", "Django")
BARE, EMIT, BULK_BARE, BULK_EMIT = KINDS = ("bare INSERT", "emit", "bulk INSERT", "bulk emit")
_EVENTS, _QUICK_EVENTS = 2_000, 400
_BULK = 1_000


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Each driver is a process; whoever inserts and whoever emits take turns in it."""
    many = _QUICK_EVENTS if size.quick else _EVENTS
    taken: dict[str, list[dict[str, float]]] = {driver: [] for driver in DRIVERS}
    for number in range(size.rounds):
        for driver in reversed(DRIVERS) if number % 2 else DRIVERS:
            backlog.empty(stand.database_url)
            taken[driver] += race([stand.start("benchmarks.emitting", driver, str(many), str(_BULK))]).answers
    for driver, answers in taken.items():
        for kind in KINDS:
            yield Figure(SECTION, f"{driver}, {kind}", UNIT, tuple(answer[kind] for answer in answers))
