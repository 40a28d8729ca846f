"""`relay migrate`: bring the schema to a version, or show the way there."""

import argparse
import sys

from relay.cli.parts import loaded
from relay.errors import ConfigurationError
from relay.outbox import schema, script
from relay.postgres.connect import connect


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "migrate",
        help="create the outbox, or bring it to this release's version",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Brings the outbox's schema to the version of this release, in one transaction.
Safe to start anywhere, any number of times at once: one does the work, the
others wait for it.""",
        epilog="""\
examples, of which the second alone changes the database:
  python -m relay migrate --plan
  python -m relay migrate
  python -m relay migrate --sql --from 1 > outbox.sql""",
    )
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
    command.set_defaults(command=_migrate)


def _migrate(options: argparse.Namespace) -> int:
    settings = loaded()
    if options.sql:
        target = schema.newest() if options.to is None else options.to
        sys.stdout.write(script.between(settings.relay_schema, options.current, target))
        return 0
    if options.current:
        raise ConfigurationError("--from goes with --sql alone; otherwise the database says which version it has")
    with connect(settings.require_database(), settings.relay_app) as connection:
        find_way = schema.plan if options.plan else schema.migrate
        way = find_way(connection, settings.relay_schema, options.to)
        version = schema.version(connection, settings.relay_schema)
    # Not earlier: all steps are one transaction, and what was printed of one that failed would not be true.
    for step in way:
        print(step)
    if not way or not options.plan:
        later = f", after the {schema.newest()} of this release, which works on it" if version > schema.newest() else ""
        print(f"schema {settings.relay_schema!r} is at version {version}{later}{'' if way else '; nothing to do'}")
    return 0
