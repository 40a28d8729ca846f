"""`relay runs`: which jobs ran, what became of them, and when they are due."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from relay.cli.parts import loaded, warned
from relay.cli.runners import our_jobs
from relay.errors import ConfigurationError
from relay.kernel.line_redaction import Redaction
from relay.operate import runs
from relay.operate.runs import Following, HistoryReader, JobNow, RunRow, Wanted
from relay.postgres.connect import connect_async
from relay.settings import Settings
from relay.upkeep.events import Status
from relay.upkeep.jobs import Job
from relay.upkeep.loading import load_jobs

MOST_LISTED = 10_000
_FOLLOW_SECONDS = 1.0
_SHOWN_ERROR = 80
# What the hook knows by the names that it has in log lines.
_IN_LINES = {"error_code": "code"}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "runs",
        help="which jobs ran, what became of them, when they are due",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Shows the history of jobs, the newest run first; with --follow what begins and
ends from now on; with --jobs one line a job: its last run, a day of runs and
failures, and where RELAY_APP names it, its schedule and next slot. Reads the
schema RELAY_SCHEMA, which may be that of an inbox, and changes nothing.""",
        epilog="""\
examples:
  python -m relay runs
  python -m relay runs --job ingest --failed
  python -m relay runs --jobs
  python -m relay runs --follow
  python -m relay runs --status timed_out --limit 10 --json""",
    )
    command.allow_abbrev = False
    command.add_argument("--job", metavar="NAME", help="of this job alone")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--status", choices=[status.value for status in Status], metavar="STATUS", help=_statuses())
    which.add_argument("--failed", action="store_true", help="all that did not end well or had errors")
    command.add_argument(
        "--limit", type=int, default=50, metavar="N", help=f"at most so many, up to {MOST_LISTED:,}. 50"
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--after", type=int, metavar="ID", help="go on after a page, with what its end says")
    how.add_argument("--follow", action="store_true", help="tell of what begins and ends, until stopped")
    how.add_argument("--jobs", action="store_true", help="one line a job")
    command.add_argument("--json", action="store_true", help="as JSON; with --follow, one object a line")
    command.set_defaults(command=lambda options: asyncio.run(_runs(options, loaded())))


def _statuses() -> str:
    names = [status.value for status in Status]
    return f"{', '.join(names[:-1])} or {names[-1]}"


async def _runs(options: argparse.Namespace, settings: Settings) -> int:
    _judge(options)
    redaction = warned(settings)
    async with await connect_async(settings.require_database(), settings.relay_name) as connection:
        history = HistoryReader(connection, settings.relay_schema)
        now = await history.require()
        if options.jobs:
            known = {job.name: job for job in _jobs_of(settings)}
            _print_jobs(await history.jobs(), known, now, redaction, options)
        elif options.follow:
            await _follow(history, _wanted(options), redaction, as_json=options.json)
        else:
            await _list(history, options, redaction)
    return 0


def _judge(options: argparse.Namespace) -> None:
    """Refuse what cannot be meant, before the database is asked."""
    if not 1 <= options.limit <= MOST_LISTED:
        raise ConfigurationError(f"--limit is {options.limit}; it is from 1 to {MOST_LISTED:,}")
    if options.after is not None and not 0 < options.after <= runs.NEWEST:
        raise ConfigurationError(f"--after is {options.after}; copy it from the end of the page before")
    if options.job is not None and "\0" in options.job:
        raise ConfigurationError("--job has a null character, which no name has")
    if options.jobs and (options.status or options.failed):
        raise ConfigurationError("--jobs shows each job as it is; --status and --failed choose runs")


def _wanted(options: argparse.Namespace) -> Wanted:
    return Wanted(options.job, Status(options.status) if options.status else None, options.failed)


def _jobs_of(settings: Settings) -> Iterable[Job]:
    """The relay's own and those of RELAY_APP; where these cannot be had here, there is their history all the same."""
    ours = our_jobs(settings)
    try:
        return [*ours, *load_jobs(settings.relay_app)]
    except ConfigurationError as error:
        print(f"relay: warning: {error}; schedules and next slots are not shown", file=sys.stderr)
        return ours


async def _list(history: HistoryReader, options: argparse.Namespace, redaction: Redaction) -> None:
    found = await history.page(_wanted(options), options.limit + 1, options.after or runs.NEWEST)
    page, more = found[: options.limit], len(found) > options.limit
    cursor = page[-1].id if more else None
    page = [_redacted(run, redaction) for run in page]
    if options.json:
        print(json.dumps({"runs": [run.as_json() for run in page], "next": cursor}))
        return
    for run in page:
        print(_line(run))
    if cursor:
        print(f"more: --after {cursor}", file=sys.stderr)
    elif not page:
        print(await _nothing(history, options), file=sys.stderr)


async def _nothing(history: HistoryReader, options: argparse.Namespace) -> str:
    """Why there is nothing to see: a name that is mistyped is no all-clear."""
    known = [job.job for job in await history.jobs()]
    if options.job is not None and options.job not in known:
        return f"no job {options.job!r} has had a slot; these have: {', '.join(known) or 'none'}"
    narrowed = options.job or options.status or options.failed or options.after
    return "no run matches" if narrowed else "no job has run"


async def _follow(history: HistoryReader, wanted: Wanted, redaction: Redaction, *, as_json: bool) -> None:
    following = Following(history)
    await following.begin()
    while True:
        for run in filter(wanted.fits, await following.look()):
            shown = _redacted(run, redaction)
            print(json.dumps(shown.as_json()) if as_json else _line(shown), flush=True)
        await asyncio.sleep(_FOLLOW_SECONDS)


def _print_jobs(
    found: Sequence[JobNow],
    known: dict[str, Job],
    now: datetime,
    redaction: Redaction,
    options: argparse.Namespace,
) -> None:
    rows = {job.job: _described(job, known.get(job.job), now) for job in found}
    # Those that nobody has begun yet come after.
    never = JobNow("", None, None, None, None, None, None, None, None, 0, 0)
    rows |= {name: _described(never._replace(job=name), job, now) for name, job in known.items() if name not in rows}
    shown = [
        redaction.fields("run_ended", row, _IN_LINES)
        for name, row in rows.items()
        if options.job is None or name == options.job
    ]
    if options.json:
        print(json.dumps({"jobs": shown}))
        return
    if not shown:
        print("no job has run, and RELAY_APP names none" if options.job is None else "no such job", file=sys.stderr)
    for line in _table(shown):
        print(line)


def _described(job: JobNow, code: Job | None, now: datetime) -> dict[str, Any]:
    upcoming = code.schedule.next_after(now) if code else None
    return runs.in_json({**job._asdict(), "schedule": str(code.schedule) if code else None, "next_slot": upcoming})


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [("job", "last run", "status", "took", "24 h", "failed", "next slot", "schedule")] if rows else []
    cells += [
        (
            row["job"],
            _second(row["started_at"]),
            runs.job_ended(row["status"] or "never ran", row["errors"] or 0, row["error_code"]),
            "-" if row["seconds"] is None else f"{row['seconds']:.1f} s",
            f"{row['runs']:,}",
            f"{row['failures']:,}",
            _second(row["next_slot"]),
            row["schedule"] or "-",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _second(moment: str | None) -> str:
    return "-" if moment is None else f"{moment[:19]}Z"


def _redacted(run: RunRow, redaction: Redaction) -> RunRow:
    return RunRow(**redaction.fields("run_ended", run._asdict(), _IN_LINES))


def _line(run: RunRow) -> str:
    counted = "".join(f"  {name}={count}" for name, count in run.counters.items())
    errors = f"  errors={run.errors}" if run.errors else ""
    error = (run.error or "").partition("\n")[0]
    error = error if len(error) <= _SHOWN_ERROR else f"{error[:_SHOWN_ERROR]}…"
    said = f"  {run.error_code or '-'}  {error}" if run.error_code or error else ""
    return (
        f"{run.id}  {runs.shown_time(run.started_at)}  {run.job}  {run.status}  {run.seconds:.1f} s"
        f"{counted}{errors}{said}  slot {runs.shown_time(run.slot)}  {run.worker}"
    )
