"""`relay migrate`: bring the schema to a version, or show the way there."""

import argparse

from relay.cli.parts import loaded
from relay.outbox.ladder import OUTBOX
from relay.postgres import command as migrating


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
    migrating.add_options(command)
    command.set_defaults(command=_migrate)


def _migrate(options: argparse.Namespace) -> int:
    settings = loaded()
    return migrating.run(options, OUTBOX, settings.relay_schema, settings.require_database, settings.relay_name)
