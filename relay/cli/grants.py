"""`relay grants`: what each role of the database needs of the outbox, as SQL or at once."""

import argparse
import sys

from relay.cli.parts import loaded
from relay.errors import ConfigurationError
from relay.outbox import grants
from relay.outbox.grants import Grantee, Role
from relay.postgres.connect import connect
from relay.settings import Settings


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser(
        "grants",
        help="give services, relays and viewers exactly the rights they need",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""\
Prints the SQL that gives each named role of the database exactly what it needs
in RELAY_SCHEMA, ready for psql; no database is asked. With --apply it is
executed on DATABASE_URL, as the owner of the outbox, in one transaction. To
run it again changes nothing. A role may be named for several purposes.

With --revoke it is the opposite: all that these lines give is taken back, usage
of the schema included. Name the role again for what it stays.""",
        epilog="""\
examples, of which the second and the third change the database:
  python -m relay grants --emitter shop --relay outbox_relay > roles.sql
  python -m relay grants --emitter shop --emitter billing --viewer ana --apply
  python -m relay grants --revoke --viewer ana --apply""",
    )
    for role in Role:
        command.add_argument(
            f"--{role.value}",
            action="append",
            default=[],
            metavar="ROLE",
            help=f"for {role.purpose}; again for another role",
        )
    command.add_argument("--apply", action="store_true", help="execute it, and print what was done")
    command.add_argument("--revoke", action="store_true", help="take the rights back")
    command.set_defaults(command=lambda options: _grants(options, loaded()))


def _grants(options: argparse.Namespace, settings: Settings) -> int:
    grantees = [Grantee(role, name) for role in Role for name in dict.fromkeys(getattr(options, role.value))]
    if not grantees:
        raise ConfigurationError(
            "grants needs a role: --emitter, --relay or --viewer; see: python -m relay grants --help"
        )
    if not options.apply:
        sys.stdout.write(grants.script(settings.relay_schema, grantees, revoke=options.revoke))
        return 0
    with connect(settings.require_database(), settings.relay_name) as connection:
        done = grants.apply(connection, settings.relay_schema, grantees, revoke=options.revoke)
        database = connection.info.dbname
    # Not earlier: it is one transaction, and what was printed of one that failed would not be true.
    print("\n".join(done))
    verb = "taken back" if options.revoke else "granted"
    print(f"{verb} in schema {settings.relay_schema!r} of database {database!r}: {len(done)} statement(s)")
    return 0


def page() -> str:
    """The SQL that `docs/deploy.md` shows, for roles as they may be called."""
    named = [Grantee(Role.EMITTER, "shop"), Grantee(Role.RELAY, "outbox_relay"), Grantee(Role.VIEWER, "outbox_viewer")]
    return f"```sql\n{grants.script('public', named)}```"
