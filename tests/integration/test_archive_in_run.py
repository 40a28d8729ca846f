"""Archives in a job: the work is done by a process of its own, which ends with the job."""

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import psutil
import psycopg
import pytest

from relay.errors import ArchiveError, ConfigurationError
from relay.postgres.connect import connect_async
from relay.upkeep.archive.errand import Address, Errand
from relay.upkeep.archive.in_run import _PROGRAM
from relay.upkeep.archive.place import Place
from relay.upkeep.run import Run, Surroundings
from tests.support.archives import FIRST, SECOND, Shelf, archive
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.slow("archives of several tables, in processes")


async def test_a_run_exports_and_drops_all_tables_and_counts(database: str, tmp_path: Path) -> None:
    """What is wrong with one table is a fault of the run, and the others have their turn."""
    fine, wrong = Shelf(database), Shelf(database, name="wrong")
    for shelf in (fine, wrong):
        for month in (FIRST, SECOND):
            shelf.month(month)
        shelf.fill(FIRST, 3)
        shelf.fill(SECOND, 1, first=100)
    wrong.say("alter table archive.wrong_2026_01 drop constraint wrong_2026_01_pkey")
    faults: list[Any] = []
    run = _run(database, _address(database, tmp_path), faults.append)

    assert await run.export() == 1
    fine.say("update archive_exports set drop_eligible_at = '2026-01-01' where state = 'verified'")
    assert await run.drop_exported() == 1

    assert {**run.counters, "exported_bytes": 0} == {
        "exported_files": 1,
        "exported_rows": 3,
        "exported_bytes": 0,
        "exports_verified": 1,
        "exports_dropped": 1,
    }
    assert [(fault.what, "no primary key" in str(fault.error)) for fault in faults] == [
        ("export of public.wrong", True)
    ]
    with pytest.raises(ConfigurationError, match="no primary key"):
        await run.export("wrong")


async def test_a_run_that_achieves_nothing_has_failed(database: str, tmp_path: Path) -> None:
    """Where no table can be exported, or the place is none, which is told once and before anything is sealed."""
    wrong = [Shelf(database, name=name) for name in ("this", "that")]
    for shelf in wrong:
        for number, month in enumerate((FIRST, SECOND)):
            shelf.month(month)
            shelf.fill(month, 1, first=number)
    faults: list[Any] = []
    for place, said in ((tmp_path / "away", "there is no directory"), ("/proc", "no file can be written to /proc/")):
        with pytest.raises(ConfigurationError, match=said):
            await _run(database, _address(database, place), faults.append).export()
    assert faults == []
    assert all(archive(database, tmp_path).standing(shelf.origin).exports == [] for shelf in wrong)

    for shelf in wrong:
        shelf.say(f"alter table archive.{shelf.table.name}_2026_01 drop constraint {shelf.table.name}_2026_01_pkey")
    with pytest.raises(ConfigurationError, match=r"export failed for all 2 table\(s\), the last .*no primary key"):
        await _run(database, _address(database, tmp_path), faults.append).export()
    assert [fault.what for fault in faults] == ["export of public.that", "export of public.this"]


async def test_a_run_that_is_cancelled_leaves_no_process(database: str, tmp_path: Path) -> None:
    """Nor a file; the next one begins where it was."""
    shelf = _full(database)
    run = _run(database, _address(database, tmp_path))
    working = asyncio.create_task(run.export())

    child = await _begun(tmp_path)
    assert child.nice() == 19
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert not child.is_running()
    (export,) = archive(database, tmp_path).standing(shelf.origin).exports
    assert export.rows is None
    assert await run.export() == 1
    assert run.counters["exported_rows"] == 50_000


async def test_a_run_that_is_to_end_stops_its_export_and_goes_on(database: str, tmp_path: Path) -> None:
    """Its process stops; what it has done by then is the answer."""
    _full(database)
    stopping = asyncio.Event()
    run = _run(database, _address(database, tmp_path), stopping=stopping)
    working = asyncio.create_task(run.export())

    await _begun(tmp_path)
    stopping.set()
    assert await working == 0
    assert _children() == []


async def test_a_child_that_is_killed_is_told_of(database: str, tmp_path: Path) -> None:
    """By the kernel, for want of memory."""
    _full(database)
    working = asyncio.create_task(_run(database, _address(database, tmp_path)).export())

    child = await _begun(tmp_path)
    child.kill()
    with pytest.raises(ArchiveError, match="ended with code -9 and without a word"):
        await working


def test_a_child_whose_parent_is_killed_does_not_stay_behind(database: str, tmp_path: Path) -> None:
    """Also where it waits for the database, and cannot be told to end."""
    errand = Errand("export", None, _address(database, tmp_path)).written()
    with psycopg.connect(database) as somebody:
        somebody.execute("lock table archive_exports")
        with Popen([sys.executable, "-c", _PARENT, _PROGRAM, json.dumps(sys.path)], stdin=PIPE, stdout=PIPE) as parent:
            assert parent.stdin
            assert parent.stdout
            parent.stdin.write(errand.encode() + b"\n")
            parent.stdin.flush()
            child = psutil.Process(int(parent.stdout.readline()))
            with psycopg.connect(database, autocommit=True) as looking:
                until(lambda: _waits(looking), "the child waits for a lock")
            parent.kill()

        until(lambda: _has_ended(child), "the child has ended")


# Starts a child as a job does, tells it what it is told itself, and is there.
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=subprocess.PIPE, start_new_session=True)
child.stdin.write(sys.stdin.readline().encode())
child.stdin.flush()
print(child.pid, flush=True)
sys.stdin.read()
"""


def _has_ended(child: psutil.Process) -> bool:
    """Whether or not somebody has taken note of it."""
    try:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _waits(looking: psycopg.Connection[Any]) -> bool:
    waiting = looking.execute(
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
    )
    return waiting.fetchone() == (True,)


async def test_a_run_without_an_archive_says_so(database: str) -> None:
    """Where nobody has told it of a place, or the place is not set."""
    with pytest.raises(ConfigurationError, match="archive"):
        await _run(database, None).export()
    with pytest.raises(ConfigurationError, match="ARCHIVE_BUCKET is not set"):
        await _run(database, _address(database, "")).export()


def _full(database: str) -> Shelf:
    """A month that takes a while."""
    shelf = Shelf(database)
    for month in (FIRST, SECOND):
        shelf.month(month)
    shelf.fill(FIRST, 50_000)
    shelf.fill(SECOND, 1, first=1_000_000)
    return shelf


async def _begun(folder: Path) -> psutil.Process:
    """The process that does it, once it has begun to write."""

    def drafts() -> bool:
        return any(folder.glob("*/.*"))

    async def is_under_way() -> bool:
        return drafts()

    await until_async(is_under_way, "a file is being written")
    (child,) = _children()
    return child


def _children() -> list[psutil.Process]:
    """Those that do errands."""
    return [child for child in psutil.Process().children() if any("errand" in word for word in child.cmdline())]


def _address(database: str, place: Path | str) -> Address:
    return Address(database, "archive", "public", Place(str(place)))


def _run(
    database: str,
    address: Address | None,
    observe: Callable[[Any], None] = lambda _: None,
    stopping: asyncio.Event | None = None,
) -> Run:
    around = Surroundings(
        connect=lambda: connect_async(database, "job"), schema="public", observe=observe, archive=address
    )
    return Run(
        job="archive",
        slot=datetime(2026, 3, 1, tzinfo=UTC),
        worker="w",
        around=around,
        stopping=stopping or asyncio.Event(),
    )
