"""`relay adopt`: compare another outbox table with what the relay would make of it, and take it over."""

import argparse
import json
import sys
from contextlib import closing
from datetime import timedelta
from typing import Any

from relay.adopt import takeover
from relay.adopt.comparison import SENT, Comparison, compare
from relay.adopt.mapping import Mapping, Refused, mapping
from relay.adopt.mapping_file import mapping_of
from relay.adopt.moving import Moved
from relay.adopt.session import Session, opened
from relay.adopt.watching import watch
from relay.adopt.words import lines
from relay.cli.event_lines import opened as opened_file
from relay.cli.event_lines import text_of
from relay.cli.parts import duration, loaded, warned
from relay.errors import ConfigurationError
from relay.kernel.command import FAILED, FINE
from relay.kernel.line_redaction import Redaction
from relay.kernel.progress import Progress
from relay.postgres.connect import connect
from relay.settings import Settings

MOST_BATCH, MOST_SENT = 10_000, 1_000_000
_TERMS = takeover.Terms()
_MOST_MAPPING = 1_000_000


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "adopt",
        help="compare another outbox table of this database, and take it over",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Moves in where events are stored in another table of the same database. Without
--take-over it changes nothing: it judges every row that waits, and the last
ones that do not, as the events that they would become, and exits 0 only when
all of them could be taken. With --take-over it does the same first, moves what
waits in batches, then locks the table for a moment, moves the rest, and has a
trigger make an event of each row from then on. Killed at any moment, the same
command goes on. --release takes the trigger away again.

What the rows are is said by options, or in a file: docs/moving-in.md has both,
for several makes of tables. Fields of --map:

  event_type, aggregate_type, aggregate_id, data (needed), event_id,
  occurred_at, version, actor, attributes, ordering_key, dedup_key, topic,
  available_at""",
        epilog="""\
examples, of which the first two change nothing:
  python -m relay adopt --mapping events.toml
  python -m relay adopt --mapping events.toml --watch 10m
  python -m relay adopt --mapping events.toml --take-over
  python -m relay adopt --table shop.events --release""",
    )
    command.allow_abbrev = False
    command.add_argument("--mapping", metavar="PATH", help="a file that says the next five, in TOML")
    command.add_argument("--table", metavar="NAME", help="the old table, with its schema")
    command.add_argument(
        "--id",
        action="append",
        default=[],
        metavar="COLUMN",
        dest="ids",
        help="by which rows are told apart and ordered; again for each further column",
    )
    command.add_argument("--pending", metavar="SQL", help="a condition: which rows still wait")
    command.add_argument(
        "--mark",
        action="append",
        default=[],
        metavar="COLUMN=SQL",
        help="what marks a row as sent; again for each further column, or: delete",
    )
    command.add_argument(
        "--map", action="append", default=[], metavar="FIELD=SQL", help="a column, or any expression over a row"
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    shadow = command.add_argument_group("to compare")
    shadow.add_argument("--watch", type=duration, metavar="TIME", help="go on comparing rows as they come, such as 10m")
    shadow.add_argument("--sent", type=int, metavar="N", help=f"compare so many rows that wait no more. {SENT:,}")
    work = command.add_argument_group("to take over")
    what = work.add_mutually_exclusive_group()
    what.add_argument("--take-over", action="store_true", help="do it, unless the comparison finds something")
    what.add_argument("--release", action="store_true", help="remove the trigger: new rows wait again")
    work.add_argument(
        "--batch", type=int, default=_TERMS.batch, metavar="N", help=f"rows a transaction. {_TERMS.batch:,}"
    )
    work.add_argument(
        "--refused",
        choices=[each.value for each in Refused],
        default=_TERMS.refused.value,
        help="what becomes of an insert whose row is no event: it fails, or the row is kept pending. fail",
    )
    work.add_argument(
        "--publisher-stopped",
        action="store_true",
        help="the old publisher does not run: a long backlog keeps its order",
    )
    for name, does in (
        ("lock_timeout", "for so long one attempt to lock the table may hold up services"),
        ("hold", "for so long the last transaction may"),
        ("patience", "for so long the lock is tried for"),
    ):
        default: timedelta = getattr(_TERMS, name)
        work.add_argument(
            f"--{name.replace('_', '-')}",
            type=duration,
            default=default,
            metavar="TIME",
            help=f"{does}. {default.total_seconds():.0f}s",
        )
    command.set_defaults(command=lambda options: _adopt(options, loaded()))


def _adopt(options: argparse.Namespace, settings: Settings) -> int:
    url, app = settings.require_database(), settings.relay_name
    if options.release:
        _refuse_words(options)
        with connect(url, app) as connection:
            removed = takeover.release(connection, settings.relay_schema, options.table, _terms(options))
        return _print_released(options, removed=removed)
    words, redaction = _mapping(options), warned(settings)
    with connect(url, app) as connection, closing(Progress()) as progress:
        connection.read_only = True
        session = opened(connection, settings.relay_schema, words)
        comparison = compare(session, progress, _sent(options))
        if options.watch is not None:
            _watch(session, comparison, options, progress)
        comparison.reword(lambda reason: _told(reason, redaction))
        if not options.take_over or not comparison.clean:
            return _print_compared(options, comparison)
        connection.read_only = False
        moved = takeover.take_over(session, _terms(options), progress)
    return _print_moved(options, comparison, moved)


def _told(reason: str, redaction: Redaction) -> str:
    """What is wrong with rows may be what a function of the user's own has said."""
    return str(redaction.fields("finding", {"check": "adopt", "error": reason})["error"])


def _watch(session: Session, comparison: Comparison, options: argparse.Namespace, progress: Progress) -> None:
    try:
        watch(session, comparison, options.watch, progress)
    except KeyboardInterrupt:
        print("relay: stopped watching; this is what was seen until then", file=sys.stderr)


def _mapping(options: argparse.Namespace) -> Mapping:
    if options.take_over and options.watch is not None:
        raise ConfigurationError("--watch compares and --take-over does it; call one after the other")
    given = _said(options)
    if options.mapping is not None:
        if any(given.values()):
            raise ConfigurationError(
                "--mapping says it all; give it without --table, --id, --pending, --mark and --map"
            )
        with opened_file(options.mapping) as file:
            return mapping_of(text_of(file.read(_MOST_MAPPING), options.mapping), options.mapping)
    missing = [name for name, said in given.items() if not said]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)} is missing; see: python -m relay adopt --help")
    return mapping(options.table, options.ids, options.pending, options.mark, options.map)


def _said(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "--table": options.table,
        "--id": options.ids,
        "--pending": options.pending,
        "--mark": options.mark,
        "--map": options.map,
    }


def _refuse_words(options: argparse.Namespace) -> None:
    if not options.table:
        raise ConfigurationError("--release needs --table: which table is given back")
    given = _said(options)
    if sum(map(bool, given.values())) > 1 or options.mapping is not None or options.watch is not None:
        raise ConfigurationError("--release needs --table alone; what the rows were taken for is no matter any more")


def _terms(options: argparse.Namespace) -> takeover.Terms:
    if not 1 <= options.batch <= MOST_BATCH:
        raise ConfigurationError(f"--batch is {options.batch}; it is from 1 to {MOST_BATCH:,}")
    for name in ("lock_timeout", "hold"):
        if getattr(options, name) <= timedelta(0):
            raise ConfigurationError(f"--{name.replace('_', '-')} is zero; write it like 3s")
    return takeover.Terms(
        batch=options.batch,
        lock_timeout=options.lock_timeout,
        hold=options.hold,
        patience=options.patience,
        refused=Refused(options.refused),
        publisher_stopped=options.publisher_stopped,
    )


def _sent(options: argparse.Namespace) -> int:
    if options.take_over and options.sent is None:
        return 0  # the comparison before told of them
    wanted: int = SENT if options.sent is None else options.sent
    if not 0 <= wanted <= MOST_SENT:
        raise ConfigurationError(f"--sent is {wanted}; it is from 0 to {MOST_SENT:,}")
    return wanted


def _print_compared(options: argparse.Namespace, comparison: Comparison) -> int:
    if options.json:
        _print_json(comparison.as_json())
    else:
        print("\n".join(lines(comparison)))
        if options.take_over:
            print("nothing was changed")
    return FINE if comparison.clean else FAILED


def _print_moved(options: argparse.Namespace, comparison: Comparison, moved: Moved) -> int:
    if options.json:
        _print_json({**comparison.as_json(), "taken_over": True, "moved": moved.rows, "stored": moved.stored})
        return FINE
    print(
        f"{moved.rows:,} row(s) of {comparison.table} were moved, {moved.stored:,} of them as new events; "
        "from now on each row that is inserted is an event at once"
    )
    return FINE


def _print_released(options: argparse.Namespace, *, removed: bool) -> int:
    if options.json:
        _print_json({"table": options.table, "released": removed})
        return FINE
    print(
        f"{options.table} is released: rows that are inserted wait again, for whoever sends them"
        if removed
        else f"{options.table} was not taken over; nothing to do"
    )
    return FINE


def _print_json(report: dict[str, Any]) -> None:
    print(json.dumps(report))
