"""What ran, and on what: without it a figure says nothing."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from benchmarks import machine
from benchmarks.figures import Size
from benchmarks.stand import Stand

ROOT = Path(__file__).resolve().parent.parent
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Environment:
    """Enough to repeat a run; neither who nor where."""

    date: str
    commit: str
    sections: tuple[str, ...]  # what was asked for
    uncommitted: bool  # whether the code was another than that of the commit
    size: str
    rounds: int  # so many values has each figure, if not said otherwise
    events: int  # in a backlog, if not said otherwise
    cpus: int
    memory_gb: int
    system: str
    python: str
    postgres: str
    broker: str
    psycopg: str
    calm: str = ""  # how often the emulator had come to rest before a measurement, in words, at the end of a run


def read(stand: Stand, size: Size, sections: Sequence[str]) -> Environment:
    """Describe this run, before its first measurement."""
    commit, changes = _git("rev-parse", "--short=10", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return Environment(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        commit=commit or UNKNOWN,
        sections=tuple(sections),
        uncommitted=bool(changes),
        size="quick" if size.quick else "full",
        rounds=size.rounds,
        events=size.events,
        cpus=machine.cpus(),
        memory_gb=round(machine.memory() / 2**30),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        postgres=_postgres(stand.database_url),
        broker=stand.broker,
        psycopg=f"{psycopg.__version__} ({psycopg.pq.__impl__})",
    )


def lines(environment: Environment) -> list[tuple[str, str]]:
    """The same in words, a line each."""
    changed = ", with changes that are not committed" if environment.uncommitted else ""
    return [
        ("date", environment.date),
        ("size", f"{environment.size}: {environment.rounds} rounds, {environment.events:,} events in a backlog"),
        ("sections", ", ".join(environment.sections)),
        ("commit", f"{environment.commit}{changed}"),
        ("machine", f"{environment.cpus} CPUs, {environment.memory_gb} GB, {environment.system}"),
        ("Python", environment.python),
        ("Postgres", environment.postgres),
        ("broker", environment.broker),
        ("psycopg", environment.psycopg),
        *([("at rest", environment.calm)] if environment.calm else []),
    ]


def _postgres(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("show server_version").fetchone()
    return str(row[0]) if row else UNKNOWN


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607 -- whichever git is there
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
