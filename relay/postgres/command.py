"""`migrate`, as each program has it: bring a schema to a version, or show the way there.

A driver is loaded only when a database is asked.
"""

import argparse
import sys
from collections.abc import Callable

from relay.errors import ConfigurationError
from relay.postgres.ladder import Ladder
from relay.postgres.script import Script


def add_options(command: argparse.ArgumentParser) -> None:
    """Add what the command may be told."""
    command.add_argument(
        "--from",
        type=int,
        default=0,
        dest="current",
        metavar="N",
        help="with --sql: the version that the database has; the script refuses any other. 0",
    )
    command.add_argument("--to", type=int, metavar="N", help="the version to reach; lower ones step back. the newest")
    show = command.add_mutually_exclusive_group()
    show.add_argument("--plan", action="store_true", help="list the steps that would be taken, and take none")
    show.add_argument("--sql", action="store_true", help="print the way as SQL; no database is asked")


def run(options: argparse.Namespace, ladder: Ladder, schema: str, address: Callable[[], str], app: str) -> int:
    """Do what it was told, and answer with the exit code; `address` is asked for the database unless none is needed."""
    if options.sql:
        target = ladder.newest() if options.to is None else options.to
        sys.stdout.write(Script(ladder).between(schema, options.current, target))
        return 0
    if options.current:
        raise ConfigurationError("--from goes with --sql alone; otherwise the database says which version it has")
    url = address()
    from relay.postgres.connect import connect  # noqa: PLC0415 -- --sql is for places without a driver, too
    from relay.postgres.schema import Versions  # noqa: PLC0415 -- the same

    versions = Versions(ladder)
    with connect(url, app) as connection:
        find_way = versions.plan if options.plan else versions.migrate
        way = find_way(connection, schema, options.to)
        version = versions.version(connection, schema)
    # Not earlier: all steps are one transaction, and what was printed of one that failed would not be true.
    for step in way:
        print(step)
    if not way or not options.plan:
        newest = ladder.newest()
        later = f", after the {newest} of this release, which works on it" if version > newest else ""
        print(f"schema {schema!r} is at version {version}{later}{'' if way else '; nothing to do'}")
    return 0
