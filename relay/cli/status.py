"""`relay status` and `relay check`: how the queue is, for people and for an alert."""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from relay.cli.parts import duration, loaded, outbox_connector, routes, warned
from relay.errors import ConfigurationError
from relay.operate.check import Limits, breaches
from relay.operate.status import Status, Versions, lines, status
from relay.outbox import schema
from relay.outbox.queue import COUNT_LIMIT, BlockedKey, look
from relay.settings import Settings


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add both commands to the command line."""
    shown = commands.add_parser(
        "status",
        help="what waits, for how long, and what failed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""\
Shows what is due and for how long, what is for later, which ordering keys wait
behind a failed row, what fails and of what, and what an operator did last.
Times are the database's. Counting ends at {COUNT_LIMIT:,}, so that a look is quick
on any table.""",
        epilog="""\
examples:
  python -m relay status
  python -m relay status --watch 5
  python -m relay status --json""",
    )
    shown.add_argument(
        "--watch", type=_seconds, nargs="?", const=2.0, metavar="SECONDS", help="again and again, with rates. 2"
    )
    shown.add_argument("--json", action="store_true", help="as JSON, one line a look")
    shown.set_defaults(command=lambda options: asyncio.run(_status(options, loaded())))

    checked = commands.add_parser(
        "check",
        help="exit 1 when rows failed, hold up their key, or wait for too long",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Exits 0 while the queue is within its limits, else 1 with a sentence for each
limit that it is not within. Rows that were discarded are not counted.""",
        epilog="""\
examples, the second for cron, which mails what is printed:
  python -m relay check --max-failed 0 --max-age 5m
  */5 * * * * cd /srv/outbox-relay && .venv/bin/python -m relay check""",
    )
    checked.add_argument("--max-failed", type=_count, default=0, metavar="N", help="failed rows that are fine. 0")
    checked.add_argument(
        "--max-age", type=duration, default=timedelta(minutes=5), metavar="TIME", help="how long a row may be due. 5m"
    )
    checked.add_argument(
        "--max-blocked-keys", type=_count, default=0, metavar="N", help="keys behind a failed row that are fine. 0"
    )
    checked.add_argument("--max-retrying", type=_count, metavar="N", help="pending rows that failed before. no limit")
    checked.add_argument("--max-pending", type=_count, metavar="N", help="pending rows, those for later too. no limit")
    checked.add_argument("--json", action="store_true", help="the verdict as JSON")
    checked.set_defaults(command=lambda options: asyncio.run(_check(options, loaded())))


async def _status(options: argparse.Namespace, settings: Settings) -> int:
    found: list[int] = []
    connect = outbox_connector(settings, found.append)
    routing = routes(settings).as_parameters
    redaction = warned(settings)
    before: Status | None = None
    async with await connect() as connection:
        versions = Versions(found[-1], schema.newest())
        while True:
            now = await status(connection, settings.relay_schema, versions, routing)
            blocked = [BlockedKey(**redaction.fields("blocked_key", key._asdict())) for key in now.blocked]
            now = replace(now, blocked=blocked)
            if options.watch and sys.stdout.isatty() and not options.json:
                print("\x1b[H\x1b[2J", end="")
            print(json.dumps(now.as_json()) if options.json else "\n".join(lines(now, before)), flush=True)
            if not options.watch:
                return 0
            before = now
            await asyncio.sleep(options.watch)
            if not options.json:
                print(flush=True)


async def _check(options: argparse.Namespace, settings: Settings) -> int:
    limits = Limits(
        failed=options.max_failed,
        age=options.max_age,
        blocked_keys=options.max_blocked_keys,
        retrying=options.max_retrying,
        pending=options.max_pending,
    )
    counted = {
        "failed": limits.failed,
        "blocked-keys": limits.blocked_keys,
        "retrying": limits.retrying,
        "pending": limits.pending,
    }
    for name, most in counted.items():
        if most is not None and most >= COUNT_LIMIT:
            raise ConfigurationError(
                f"--max-{name} is {most:,}, and counting ends at {COUNT_LIMIT:,}; name a lower one"
            )
    async with await outbox_connector(settings)() as connection:
        queue = await look(connection, settings.relay_schema)
    found = breaches(queue, limits)
    if options.json:
        verdict: dict[str, Any] = {"passed": not found, "breaches": [asdict(breach) for breach in found]}
        print(json.dumps(verdict))
    else:
        for breach in found:
            print(breach.sentence)
    return 1 if found else 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= timedelta(days=1).total_seconds():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; write it like 5 or 0.5")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows, 0 or more")
    return int(text)
