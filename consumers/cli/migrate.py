"""`consumers migrate`: bring the inbox's schema to a version, or show the way there."""

import argparse

from consumers.cli.parts import loaded_settings
from consumers.inbox.address import checked
from consumers.inbox.schema import INBOX
from relay.postgres import command as migrating
from relay.setting_base import text_of


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "migrate",
        help="create the inbox, or bring it to this release's version",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Brings the inbox's schema to the version of this release, in one transaction.
Safe to start anywhere, any number of times at once: one does the work, the
others wait for it. Needs DATABASE_URL, and neither Pub/Sub nor Redis.""",
        epilog="""\
examples, of which the second alone changes the database:
  python -m consumers migrate --plan
  python -m consumers migrate
  python -m consumers migrate --sql > inbox.sql""",
    )
    migrating.add_options(command)
    command.set_defaults(command=_migrate)


def _migrate(options: argparse.Namespace) -> int:
    settings = loaded_settings()

    def address() -> str:
        settings.require("database_url")
        return checked(text_of(settings.database_url))

    return migrating.run(options, INBOX, settings.inbox_schema, address, settings.consumers_name)
