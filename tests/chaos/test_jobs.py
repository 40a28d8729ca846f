"""Jobs of several processes, which die, lose their connections, and are cut off: one run a slot, never two at once."""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.chaos.working_jobs import Line, read
from tests.support.chaos import sized
from tests.support.commands import ROOT
from tests.support.forked import Forked
from tests.support.jobs import runs
from tests.support.proxy import Proxy, postgres_proxy
from tests.support.waiting import until

REPLICAS = 3
SLOTS = sized(3, 60)
# A slot that nobody misses begins within so much of its moment, on a machine that does other things as well.
ON_TIME_SECONDS = 1.0
INTERVAL = sized(2, 10)
# What comes as the lock is being lost, or as the machine stalls, is skipped.
MOMENT = 1.0
PING = sized(1, 5)
# Beside other work an end takes a little longer.
SLOW = sized(5, 1)
LOCKS = """
    select pid from pg_locks
     where locktype = 'advisory' and granted
       and database = (select oid from pg_database where datname = current_database())
"""


@contextmanager
def process(url: str, file: Path, interval: int, seconds: float, ping: float = 5.0) -> Iterator[Forked]:
    """One with a job, until the end of the block."""
    words = ["jobs", f"{interval}s", str(seconds), str(ping), str(file)]
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    log = file.with_suffix(".log")
    with Forked("tests.chaos.working_jobs:main", words, env=environment, cwd=file.parent, log=log) as running:
        try:
            yield running
        finally:
            running.kill()


def beginnings(file: Path) -> list[Line]:
    """Of the work, one by one."""
    return [line for line in read(file) if line.what == "began"]


def until_begun(file: Path, number: int, seconds: float) -> Line:
    """Return the beginning of that number, when it is there."""
    until(lambda: len(beginnings(file)) >= number, f"{number} runs began: {read(file)}", seconds)
    return beginnings(file)[number - 1]


def status_of(database: str, line: Line) -> str:
    """How the run that a line is of stands."""
    (status,) = [run["status"] for run in runs(database) if run["slot"].timestamp() == line.slot]
    return str(status)


def never_two_at_once(lines: list[Line], dead: Collection[int] = ()) -> bool:
    """Whether each piece of work ended before the next one began; those that were killed ended by that."""
    working: set[int] = set()
    for line in lines:
        if line.what == "began":
            if working.difference(dead):
                return False
            working.add(line.pid)
        elif line.what == "ended":
            working.discard(line.pid)
    return True


def test_three_replicas_run_each_slot_once(database: str, tmp_path: Path) -> None:
    """A job each second: as many runs as seconds, on time, and never two at once."""
    file = tmp_path / "lines"
    with ExitStack() as opened:
        replicas = [opened.enter_context(process(database, file, 1, 0.3)) for _ in range(REPLICAS)]
        first = until_begun(file, 1, 30)
        until_begun(file, SLOTS + 1, SLOTS + 30)
        for replica in replicas:
            replica.send_signal(signal.SIGTERM)
        assert [replica.wait(30) for replica in replicas] == [0] * REPLICAS
    lines = read(file)
    begun = [line for line in lines if line.what == "began" and 0 < line.slot - first.slot <= SLOTS]
    slots = [line.slot for line in begun]
    assert len(set(slots)) == len(slots)
    assert abs(len(slots) - SLOTS) <= 1
    assert never_two_at_once(lines)
    late = [line.at - line.slot for line in begun]
    assert min(late) >= 0
    assert max(late) < ON_TIME_SECONDS, late
    print(f"{len(slots)} runs in {SLOTS} slots, {min(late) * 1000:.0f} to {max(late) * 1000:.0f} ms late")  # noqa: T201 -- the figure itself
    assert {run["status"] for run in runs(database)} == {"done"}


def test_the_slot_after_a_kill_runs_on_time(database: str, tmp_path: Path) -> None:
    """A holder that is killed has its lock no more: another one runs the next slot, and knows that it was killed."""
    file, dead = tmp_path / "lines", set[int]()
    with ExitStack() as opened:
        replicas = [opened.enter_context(process(database, file, 2, 1.5)) for _ in range(2)]
        for _ in range(sized(1, 5)):
            begun = len(beginnings(file))
            holder = until_begun(file, begun + 1, 30)
            (victim,) = [each for each in replicas if each.pid == holder.pid]
            victim.kill()
            killed = time.time()
            dead.add(holder.pid)
            following = until_begun(file, begun + 2, 30)
            assert following.slot < killed + 2 + MOMENT
            assert following.at - following.slot < ON_TIME_SECONDS
            print(f"killed: the next run began {(following.at - following.slot) * 1000:.0f} ms late")  # noqa: T201
            assert status_of(database, holder) == "killed"
            replicas.append(opened.enter_context(process(database, file, 2, 1.5)))
    assert never_two_at_once(read(file), dead)


@pytest.mark.parametrize(
    "silent",
    [False, pytest.param(True, marks=pytest.mark.slow("waits until a silent server is given up"))],
    ids=["terminated", "black hole"],
)
def test_a_holder_without_its_lock_stops_and_the_next_slot_runs(database: str, tmp_path: Path, *, silent: bool) -> None:
    """One whose session is ended stops at once.

    One that is cut off without a word stops within two pings, which are ten seconds. Slots are skipped until the server
    gives its session up: its keepalives take 25 s for that, and the end of the silence stands for them here.
    """
    file = tmp_path / "lines"
    with ExitStack() as opened:
        proxies: dict[int, Proxy] = {}
        for _ in range(2):
            proxy, url = opened.enter_context(postgres_proxy(database))
            replica = opened.enter_context(process(url, file, INTERVAL, 5 * INTERVAL, PING))
            proxies[replica.pid] = proxy
        holder = until_begun(file, 1, 30)
        cut = time.time()
        if silent:
            proxies[holder.pid].freeze()
        else:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(f"select pg_terminate_backend(pid) from ({LOCKS}) as locks")  # noqa: S608
        until(lambda: any(line.what == "ended" for line in read(file)), "the holder stops", 30)
        (ended,) = [line for line in read(file) if line.what == "ended"]
        assert (ended.pid, ended.slot) == (holder.pid, holder.slot)
        # The server itself would tell of the end of its connection after 25 s.
        assert ended.at - cut < (2 * PING + SLOW if silent else 6.0)
        if silent:
            proxies[holder.pid].cut()
        free = time.time()
        following = until_begun(file, 2, 2 * INTERVAL + 30)
        assert following.at - following.slot < ON_TIME_SECONDS
        assert following.slot < free + INTERVAL + MOMENT
        print(  # noqa: T201 -- the figures themselves
            f"{'silent' if silent else 'terminated'}: it stopped {ended.at - cut:.3f} s after the cut, and the next "
            f"run began {(following.at - following.slot) * 1000:.0f} ms late"
        )
        assert following.pid != holder.pid or not silent
        assert status_of(database, holder) == ("killed" if silent else "lost")
    assert never_two_at_once(read(file))
