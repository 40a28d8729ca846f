"""`relay run` as a process that is looked at from outside."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.contest import ContestError

_STOP_SECONDS = 30.0
_KILOBYTE = 1_024
_DRAIN_SECONDS = 300.0
_AT_REST = """
select not exists (select from outbox_events where published_at is null)
       and exists (select from pg_locks where locktype = 'advisory' and classid = 2002873189 and granted)
"""


@dataclass(frozen=True)
class Memory:
    """Resident memory in MB of a million bytes: now, and the most since the start."""

    now: float
    most: float


@dataclass(frozen=True)
class Relay:
    """The process."""

    pid: int

    def memory(self) -> Memory:
        """What it holds."""
        return memory_in((Path("/proc") / str(self.pid) / "status").read_text())

    def cpu_seconds(self) -> float:
        """What all of its threads have worked so far; those that have ended are not counted."""
        tasks = (Path("/proc") / str(self.pid) / "task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory_in(status: str) -> Memory:
    """Read `/proc/<pid>/status`."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    now, most = (int(fields[name].split()[0]) * _KILOBYTE / 1e6 for name in ("VmRSS", "VmHWM"))
    return Memory(now, most)


@contextmanager
def relay(environment: Mapping[str, str], topic: str) -> Iterator[Relay]:
    """Run it for the length of the block, with its defaults, and logs of errors alone."""
    named = {"RELAY_TOPIC": topic, "RELAY_LOG_LEVEL": "error"}
    process = subprocess.Popen([sys.executable, "-m", "relay", "run"], env={**os.environ, **environment, **named})
    try:
        yield Relay(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], what: str, seconds: float, step: float = 0.1) -> None:
    """Return when the condition holds. Raises ContestError where it does not within this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ContestError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(step)


def at_rest(url: str) -> None:
    """Return when a relay has published all there was, and sleeps."""
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: connection.execute(_AT_REST).fetchone() == (True,), "a relay at rest", _DRAIN_SECONDS)
