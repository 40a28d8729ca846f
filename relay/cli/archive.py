"""`relay archive status | export | verify | drop | restore`: archived rows as Parquet files."""

import argparse
import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from datetime import date
from typing import Any

import psycopg

from relay.cli import archive_lines
from relay.cli.parts import loaded, warned
from relay.errors import ConfigurationError, RelayError
from relay.kernel.command import FAILED, FINE, complain
from relay.kernel.failure import told, told_of_database
from relay.kernel.progress import Progress
from relay.postgres.connect import connect
from relay.postgres.operators import add_operator, judge_operator, named_operator
from relay.settings import Settings
from relay.upkeep.archive import months
from relay.upkeep.archive.archive import Archive, Done
from relay.upkeep.archive.place import Place
from relay.upkeep.archive.record import Insistence
from relay.upkeep.archive.store import PlaceAwayError, UnusablePlaceError
from relay.upkeep.archive.watch import Watch
from relay.upkeep.table_name import TableName

_Command = Callable[[argparse.Namespace, Archive, Settings], int]
_Work = Callable[[str, Watch], Done]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, and what it can do, to the command line."""
    command = commands.add_parser(
        "archive",
        help="export archived rows to Parquet files, and bring them back",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
What becomes of rows that a mover has put into the schema archive: months that
are over are set aside, written to ARCHIVE_BUCKET as Parquet files and read back
from there; 30 days later they may be dropped. Whatever is interrupted goes on
with the next call. docs/archive.md tells of files, types and rights.""",
        epilog="""\
examples:
  python -m relay archive status
  python -m relay archive export
  python -m relay archive drop
  python -m relay archive restore sources 2026-01""",
    )
    kinds = command.add_subparsers(title="what to do", metavar="ACTION", required=True)

    status = _kind(kinds, "status", "what was exported, and which months wait", _status, "--json")
    status.add_argument("--table", metavar="TABLE", help="of this table alone")
    status.add_argument("--json", action="store_true", help="a JSON document with all that is recorded")

    export = _kind(
        kinds, "export", "write months that are over to files, and read them back", _export, "--table sources"
    )
    _add_parts(export, "this month, also where it is not over: what comes later is another part")
    export.add_argument(
        "--again", action="store_true", help="the files of --month are not whole: write all of them anew"
    )

    verify = _kind(kinds, "verify", "read all files back, and compare", _verify, "--table sources --month 2026-01")
    _add_parts(verify, "this month alone")

    drop = _kind(
        kinds, "drop", "drop what was verified 30 days ago, its files read back once more", _drop, "--table sources"
    )
    _add_parts(drop, "this month alone")
    drop.add_argument(
        "--now", action="store_true", help="do not wait until the 30 days are over; needs --month, --reason"
    )
    add_operator(drop, ". Goes with --now")

    restore = _kind(kinds, "restore", "bring the rows of a month back, into a table", _restore, "sources 2026-01")
    restore.add_argument("table", metavar="TABLE", help="the one that the rows came from")
    restore.add_argument("month", metavar="MONTH", type=_month, help="such as 2026-01")
    restore.add_argument(
        "--into",
        type=_table,
        metavar="TABLE",
        help="made where it is not there; it must be empty. archive.<table>_2026_01_restored",
    )
    restore.add_argument("--part", type=int, metavar="N", help="this part of the month alone")


def _kind(kinds: Any, name: str, does: str, work: _Command, example: str) -> argparse.ArgumentParser:
    kind: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=does,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"example:\n  python -m relay archive {name} {example}",
    )
    kind.allow_abbrev = False
    kind.set_defaults(command=lambda options: _run(options, loaded(), work))
    return kind


def _add_parts(kind: argparse.ArgumentParser, month: str) -> None:
    kind.add_argument("--table", metavar="TABLE", help="the rows of this table alone")
    kind.add_argument("--month", type=_month, metavar="MONTH", help=f"{month}; such as 2026-01, with --table")


def _run(options: argparse.Namespace, settings: Settings, work: _Command) -> int:
    if getattr(options, "month", None) and options.table is None:
        raise ConfigurationError("--month goes with --table: name the table, too")
    url, name = settings.require_database(), settings.relay_name
    return work(options, Archive(lambda: connect(url, name), settings.relay_schema, Place.of(settings)), settings)


def _status(options: argparse.Namespace, archive: Archive, _: Settings) -> int:
    tables = [archive.standing(origin) for origin in archive.origins(options.table)]
    if options.json:
        print(json.dumps({"tables": [archive_lines.document(table) for table in tables]}))
    else:
        print("\n".join(archive_lines.lines(tables)))
    return FINE


def _export(options: argparse.Namespace, archive: Archive, settings: Settings) -> int:
    if options.again and options.month is None:
        raise ConfigurationError("--again goes with --table and --month: name the month whose files are written anew")
    archive.require()

    def work(origin: str, watch: Watch) -> Done:
        return archive.export(origin, options.month, again=options.again, watch=watch)

    return _each(options, archive, settings, work, archive_lines.exported)


def _verify(options: argparse.Namespace, archive: Archive, settings: Settings) -> int:
    archive.require()

    def work(origin: str, watch: Watch) -> Done:
        return archive.verify(origin, options.month, watch)

    return _each(options, archive, settings, work, archive_lines.verified)


def _drop(options: argparse.Namespace, archive: Archive, settings: Settings) -> int:
    judge_operator(options)
    if options.now != bool(options.why) or (options.by and not options.now):
        raise ConfigurationError("--now and --reason go together: say why you do not wait, it is recorded")
    if options.now and options.month is None:
        raise ConfigurationError("--now goes with --table and --month: name what you do not wait for")
    archive.require()
    insistence = Insistence(options.by or _user(archive), options.why) if options.now else None

    def work(origin: str, watch: Watch) -> Done:
        return archive.drop(origin, options.month, insistence, watch)

    return _each(options, archive, settings, work, archive_lines.dropped)


def _restore(options: argparse.Namespace, archive: Archive, _: Settings) -> int:
    archive.require()
    (origin,) = archive.origins(options.table)
    into = options.into or archive.restored(origin, options.month)
    with closing(Progress()) as progress:
        rows = archive.restore(origin, options.month, into=into, part=options.part, watch=Watch(tell=progress))
    print(f"{rows:,} row(s) of {origin} {months.written(options.month)} are in {into}")
    return FINE


def _each(
    options: argparse.Namespace, archive: Archive, settings: Settings, work: _Work, say: Callable[[Done], list[str]]
) -> int:
    """All tables, or the one that is meant; what is wrong with one is said, and the others have their turn."""
    origins = archive.origins(options.table)
    redaction = warned(settings)
    fine = True
    for origin in origins:
        faults: list[Exception] = []
        try:
            with closing(Progress()) as progress:
                done = work(origin, Watch(tell=progress))
        except (RelayError, psycopg.Error) as error:
            if options.table is not None or isinstance(error, (UnusablePlaceError, PlaceAwayError)):
                raise
            faults.append(error)
        else:
            print("\n".join(say(done)), flush=True)
            faults += done.faults
        for fault in faults:
            text = told_of_database(fault) if isinstance(fault, psycopg.Error) else str(fault) or told(fault)
            complain("relay", redaction.lines(fault, text))
            fine = False
    if not origins:
        print("nothing was archived yet")
    return FINE if fine else FAILED


def _user(archive: Archive) -> str:
    async def connected() -> Archive:
        return archive

    return asyncio.run(named_operator(connected))


def _month(text: str) -> date:
    try:
        return months.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _table(text: str) -> TableName:
    try:
        return TableName.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
