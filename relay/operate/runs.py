"""`relay runs`: the history of jobs, as pages, as what changes, and as one line a job."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import args_row

from relay.errors import ConfigurationError, SchemaError
from relay.kernel.moment import rfc3339
from relay.outbox.queue import operating
from relay.upkeep.events import Status
from relay.upkeep.statements import statement

NEWEST = 2**63 - 1
# Ids are drawn before they are committed: so far behind the newest that was seen, one may still appear.
_OVERLAP = 100
# Of those that run as one begins to follow, so many are waited for.
_MOST_AT_WORK = 1_000


class RunRow(NamedTuple):
    """One run of a job, as its row has it."""

    id: int
    job: str
    slot: datetime
    worker: str
    status: str
    started_at: datetime
    finished_at: datetime | None
    seconds: float  # so far, of one that is running
    counters: Mapping[str, int]
    errors: int
    error_code: str | None
    error: str | None

    def as_json(self) -> dict[str, Any]:
        """For scripts; times are RFC 3339."""
        return in_json(self._asdict())


class JobNow(NamedTuple):
    """One job with its newest run, and a day of its history."""

    job: str
    last_slot: datetime | None
    id: int | None
    status: str | None
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    errors: int | None
    error_code: str | None
    runs: int  # begun in the last 24 hours
    failures: int  # of those


class Failing(NamedTuple):
    """A job whose last run did not end well or had errors."""

    job: str
    status: str
    finished_at: datetime
    errors: int
    error_code: str | None


def job_ended(status: str, errors: int, code: str | None) -> str:
    """How a run has ended, in a word or a few: a run that is done may have had errors all the same."""
    had = f"with {errors} error{'s' * (errors > 1)}" if errors and status == Status.DONE.value else None
    return " ".join(filter(None, [status, had, code]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are meant; None leaves a field open, and `failed` means all that did not end well or had errors."""

    job: str | None = None
    status: Status | None = None
    failed: bool = False

    @property
    def page(self) -> str:
        """The statement that finds them by an index."""
        match self.status:
            case Status.RUNNING:
                return "runs_page_running"
            case None if self.failed:
                return "runs_page_failed"
            case None | Status.DONE:
                return "runs_page" if self.job is None else "runs_page_of_job"
            case _:
                return "runs_page_failed"

    def fits(self, run: RunRow) -> bool:
        """Whether a run is one of them."""
        if self.failed and run.status in {Status.RUNNING.value, Status.DONE.value} and not run.errors:
            return False
        return (self.job is None or run.job == self.job) and (self.status is None or run.status == self.status.value)


class HistoryReader:
    """The history of jobs in one schema, over one connection in autocommit mode."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def require(self) -> datetime:
        """What time it is by the database. Raises where there is no history, or none that this role may read."""
        there, may_read, now = await self._there()
        info = self._connection.info
        if not there:
            raise SchemaError(
                f"database {info.dbname!r} has no history of jobs in schema {self._schema!r}; name its schema in "
                "RELAY_SCHEMA, or make it with: python -m relay migrate (beside an inbox: python -m consumers migrate)"
            )
        if not may_read:
            raise ConfigurationError(
                f"role {info.user!r} may not read relay_runs and relay_schedule in schema {self._schema!r}; "
                "grant it select on them: python -m relay grants --viewer ROLE"
            )
        return now

    async def page(self, wanted: Wanted, rows: int, before: int = NEWEST) -> list[RunRow]:
        """The next runs that are meant, the newest first."""
        status = None if wanted.status is None else wanted.status.value
        values = {"job": wanted.job, "status": status, "rows": rows, "before": before}
        return await self._asked(RunRow, wanted.page, values)

    async def changed(self, after: int, running: Collection[int]) -> list[RunRow]:
        """Runs that came after this id, and these others as they are by now."""
        return await self._asked(RunRow, "runs_changed", {"after": after, "running": list(running)})

    async def jobs(self) -> list[JobNow]:
        """Each job that ever had a slot."""
        return await self._asked(JobNow, "runs_jobs", {})

    async def failing(self) -> list[Failing] | None:
        """Jobs whose last run, of late, did not end well or had errors; None where this role may not read it."""
        _, may_read, _ = await self._there()
        return await self._asked(Failing, "runs_failing", {}) if may_read else None

    async def _there(self) -> tuple[bool, bool, datetime]:
        async with operating(self._connection, self._schema):
            rows = await (await self._connection.execute(statement("runs_there"))).fetchall()
        ((there, may_read, now),) = rows
        return bool(there), bool(may_read), now

    async def _asked(self, kind: Any, name: str, values: Mapping[str, Any]) -> list[Any]:
        async with operating(self._connection, self._schema):
            cursor = self._connection.cursor(row_factory=args_row(kind))
            await cursor.execute(statement(name), values)
            return await cursor.fetchall()


class Following:
    """Tells of each run when it begins and when it ends, once each, from looks that overlap."""

    def __init__(self, history: HistoryReader) -> None:
        self._history = history
        self._newest = 0
        self._running: set[int] = set()
        self._ended: set[int] = set()

    async def begin(self) -> None:
        """Take what is there for told."""
        self._newest = max((run.id for run in await self._history.page(Wanted(), 1)), default=0)
        at_work = await self._history.page(Wanted(status=Status.RUNNING), _MOST_AT_WORK)
        list(self._untold([*at_work, *await self._history.changed(self._after, ())]))

    async def look(self) -> list[RunRow]:
        """What began or ended since, in the order of their ids."""
        return list(self._untold(await self._history.changed(self._after, self._running)))

    @property
    def _after(self) -> int:
        return max(0, self._newest - _OVERLAP)

    def _untold(self, found: Sequence[RunRow]) -> Iterator[RunRow]:
        for run in found:
            begun = run.status == Status.RUNNING.value
            if run.id in (self._running if begun else self._ended):
                continue
            if begun:
                self._running.add(run.id)
            else:
                self._running.discard(run.id)
                self._ended.add(run.id)
            self._newest = max(self._newest, run.id)
            yield run
        self._ended = {each for each in self._ended if each > self._after}


def in_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with their times as RFC 3339, and seconds to the millisecond."""
    return {name: _json(value) for name, value in fields.items()}


def shown_time(moment: datetime) -> str:
    """A time to the second, for people."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case float():
            return round(value, 3)
        case _:
            return value
