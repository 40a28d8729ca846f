"""The CPU that processes have used so far, whether they run or have ended."""

from collections.abc import Mapping, Sequence

import psutil
import psycopg

from benchmarks.contest import Contestant, Meter
from benchmarks.stand import Stand


def meters(stand: Stand, contestants: Sequence[Contestant]) -> Mapping[str, Meter]:
    """In seconds: of the emulator, of Postgres with all of its processes, of those who take part."""
    emulator, postgres = psutil.Process(stand.server.pid), postmaster(stand.database_url)
    measured = [psutil.Process(contestant.process.pid) for contestant in contestants]
    return {
        "emulator": lambda: used(emulator),
        "Postgres": lambda: used_by_all(postgres),
        "itself": lambda: sum(map(used, measured)),
    }


def postmaster(url: str) -> psutil.Process:
    """The process that all others of a Postgres on this machine come from."""
    with psycopg.connect(url) as connection:
        parent = psutil.Process(connection.info.backend_pid).parent()
    if parent is None:
        raise AssertionError("a backend is somebody's child")
    return parent


def used(process: psutil.Process) -> float:
    """By one process; one that has ended is still there until its parent asks for its code."""
    times = process.cpu_times()
    return float(times.user + times.system)


def used_by_all(parent: psutil.Process) -> float:
    """By a process and its children; the parent knows of those that have ended.

    One that ends as it is looked at would be counted twice or not at all, so that it is looked again.
    """
    while True:
        before = _by_ended(parent)
        running = sum(map(_used_or_gone, parent.children()))
        if _by_ended(parent) == before:
            return used(parent) + running + before


def _by_ended(parent: psutil.Process) -> float:
    times = parent.cpu_times()
    return float(times.children_user + times.children_system)


def _used_or_gone(child: psutil.Process) -> float:
    try:
        return used(child)
    except psutil.NoSuchProcess:
        return 0.0
