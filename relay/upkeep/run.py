"""What a job is given: which run this is, what it counts, and a way to the database."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psycopg

from relay.errors import ConfigurationError
from relay.extras import installed_by
from relay.kernel.clock import Clock, SystemClock
from relay.kernel.code_duration import Duration, read, shown
from relay.kernel.observe import Observe
from relay.kernel.runner import Budget
from relay.upkeep.events import RunFault
from relay.upkeep.http import HttpCall
from relay.upkeep.mover import Mover
from relay.upkeep.position import Scheduled
from relay.upkeep.statements import statement
from relay.upkeep.table import Table

if TYPE_CHECKING:
    from relay.upkeep.archive.errand import Address

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
# Makes a call of the internal API, within so many seconds.
Api = Callable[[HttpCall, float], Awaitable[None]]

_LONGEST_NAME = 100
# Of the time that a job has left a move takes so much: what comes behind it has its time, too.
_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the runs of a process have in common."""

    connect: Connect
    """A connection in autocommit mode."""
    schema: str
    """The schema of `relay_schedule` and `relay_runs`."""
    observe: Observe
    schema_setting: str = "RELAY_SCHEMA"
    """The setting that names this schema."""
    api: Api | None = None
    """Calls the internal API of HTTP jobs."""
    archive: "Address | None" = None
    """Where archived rows are written to files."""


class Run:
    """One run of a job. Everything here is for the job's own coroutine, and for tasks that it waits for."""

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        *,
        job: str,
        slot: datetime,
        worker: str,
        around: Surroundings,
        stopping: asyncio.Event,
        clock: Clock | None = None,
        deadline: float = math.inf,
    ) -> None:
        self.job = job
        self.slot = slot
        """The moment that this run is for; later runs have later ones."""
        self.worker = worker
        """Who runs it: job, host, process, and an id of this run's own."""
        self._around = around
        self._stopping = stopping
        self._clock = clock or SystemClock()
        self._deadline = deadline
        self._counters: Counter[str] = Counter()
        self._errors = 0
        self._last_fault: RunFault | None = None

    @property
    def stopping(self) -> bool:
        """Whether the process is about to end: a job that can stop early does, or it is cancelled."""
        return self._stopping.is_set()

    async def until_stopping(self) -> None:
        """Return when the process is about to end."""
        await self._stopping.wait()

    @property
    def counters(self) -> Mapping[str, int]:
        """What was counted so far."""
        return MappingProxyType(self._counters)

    @property
    def errors(self) -> int:
        """How many faults there were that did not end it."""
        return self._errors

    @property
    def last_fault(self) -> RunFault | None:
        """The last of them."""
        return self._last_fault

    def count(self, name: str, by: int = 1) -> None:
        """Count something that the history shall show, such as rows that were read."""
        if not _is_countable(name, by):
            raise ConfigurationError(
                f"run.count({shown(name)}, {shown(by)}): count a whole number under a name of up to {_LONGEST_NAME} "
                "characters"
            )
        self._counters[name] += by

    def fault(self, error: BaseException, what: str = "") -> None:
        """Note what went wrong and does not end the run; the history counts it as an error, and the log tells it."""
        self._errors += 1
        self._last_fault = RunFault(self.job, self.worker, what, error)
        self._around.observe(self._last_fault)

    async def call_api(self, method: str, path: str, *, timeout: Duration = "30s") -> None:  # noqa: ASYNC109 -- an HTTP client's
        """Call a path of the internal API, and wait for its answer.

        Raises ApiError where that is no success, and ConfigurationError for what is no call.
        """
        try:
            call, seconds = HttpCall.of(method, path), read(timeout).total_seconds()
        except ValueError as fault:
            raise ConfigurationError(f"run.call_api: {fault}") from None
        if self._around.api is None:
            raise ConfigurationError(
                "calls of the API need WORKER_API_BASE_URL, WORKER_API_SERVICE_TOKEN and the package 'httpx'; one of "
                f"them is missing. The last comes with: {installed_by('http')}"
            )
        self.count("http_requests")
        await self._around.api(call, seconds)

    async def move(self, table: Table) -> int:
        """Move the rows of a table that are over; how many. Counted as moved:<table>, page by page.

        It goes over the whole table, or until the job has a tenth of its time left: the next run goes on where this one
        has ended. Raises ConfigurationError where the table is not as it is described, and MoveError where a row cannot
        be moved.
        """
        counted = f"moved:{table.place}"[:_LONGEST_NAME]
        mover = Mover(
            table,
            self._around.connect,
            Scheduled(self._around.schema),
            clock=self._clock,
            told=lambda rows: self.count(counted, rows),
        )
        now = self._clock.monotonic()
        deadline = now + (self._deadline - now) * _SHARE
        moved = await mover.run(Budget(deadline, self._clock.monotonic, self._stopping))
        return moved.moved

    async def export(self, table: str | None = None) -> int:
        """Write archived months that are over to files, and read them back; how many files.

        Of all tables, or of one. What is wrong with one of several is a fault, and the others go on. Counted as
        exported_files, exported_rows, exported_bytes and exports_verified. A run that ends early loses the file in
        hand at most. Raises ConfigurationError where a package is missing or ARCHIVE_BUCKET names no place that can be
        written to, before anything is sealed; and ConfigurationError or ArchiveError where every table failed.
        """
        from relay.upkeep.archive import in_run  # noqa: PLC0415 -- most jobs have no archive

        return await in_run.run_errand(self, self._around.archive, "export", table)

    async def drop_exported(self, table: str | None = None) -> int:
        """Drop what was exported and verified 30 days ago, once its files were read back again; how many tables.

        Counted as exports_dropped. A file that is missing or changed is a fault, and keeps its rows.
        Raises as export does.
        """
        from relay.upkeep.archive import in_run  # noqa: PLC0415 -- the same

        return await in_run.run_errand(self, self._around.archive, "drop", table)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection of its own to the database, in a transaction that is committed at the end of the block."""
        connection = await self._around.connect()
        try:
            async with connection.transaction():
                await connection.execute(statement("run_enter"), prepare=False)
                yield connection
        finally:
            await connection.close()


def _is_countable(name: object, by: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and "\0" not in name and type(by) is int
