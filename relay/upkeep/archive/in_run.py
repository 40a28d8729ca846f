"""Archives in a job: the work is in a thread, and ends soon after the job does."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg

from relay.errors import ConfigurationError, RelayError
from relay.upkeep.archive.archive import Archive, Done
from relay.upkeep.archive.lock import ArchiveBusyError
from relay.upkeep.archive.watch import StoppedError, Watch

if TYPE_CHECKING:
    from relay.upkeep.run import Run

T = TypeVar("T")


async def export(run: "Run", archive: Archive | None, table: str | None) -> int:
    """How many files were written."""
    there = _there(archive)
    done = await _each(run, there, table, "export", lambda origin, watch: there.export(origin, watch=watch))
    return sum(each.files for each in done)


async def drop(run: "Run", archive: Archive | None, table: str | None) -> int:
    """How many sealed tables were dropped."""
    there = _there(archive)
    done = await _each(run, there, table, "drop", lambda origin, watch: there.drop(origin, watch=watch))
    return sum(len(each.dropped) for each in done)


async def _each(
    run: "Run", archive: Archive, table: str | None, what: str, work: Callable[[str, Watch], Done]
) -> list[Done]:
    """All of the tables, or the one that is meant; what is wrong with one of several does not keep the others."""
    await asyncio.to_thread(archive.require)
    done: list[Done] = []
    for origin in await asyncio.to_thread(archive.origins, table):
        if run.stopping:
            break
        try:
            done.append(await _in_thread(run, partial(work, origin)))
        except ArchiveBusyError:
            # Whoever has it in hand does the work.
            run.count("archives_busy")
        except (RelayError, psycopg.Error) as error:
            if table is not None:
                raise
            run.fault(error, f"{what} of {origin}")
    for each in done:
        for fault in each.faults:
            run.fault(fault, f"{what} of {each.origin}")
    return done


async def _in_thread(run: "Run", work: Callable[[Watch], T]) -> T:
    """Wait for it. Whoever is cancelled waits until the thread has seen it: two of them would be at work else."""
    ended = threading.Event()

    def check() -> None:
        if ended.is_set() or run.stopping:
            raise StoppedError

    working = asyncio.ensure_future(asyncio.to_thread(work, Watch(check, count=run.count)))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        ended.set()
        await asyncio.wait([working])
        # What it raised is the end of a job that is over.
        working.exception()
        raise


def _there(archive: Archive | None) -> Archive:
    if archive is None:
        raise ConfigurationError("nothing here knows of an archive: export from a job that `relay` or `consumers` runs")
    return archive
