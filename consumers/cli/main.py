"""Reads the command line, and turns every error that was foreseen into a sentence and an exit code."""

import argparse
import sys
from collections.abc import Sequence

from consumers.cli import config, dead_letters, deliveries, failed, migrate, reconcile, run, subscribers
from consumers.cli.parts import warned
from consumers.errors import ConfigurationError
from consumers.settings import load
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.command import FAILED, MISUSED, complain, not_text, version_line
from relay.kernel.complaints import Complaints
from relay.kernel.failure import told, told_of_database

_COMPLAINTS = Complaints("consumers", (ConfigurationError, relay_errors.ConfigurationError), load, warned)

# Each module adds its own by `add_to`, in this order.
COMMANDS = (run, migrate, deliveries, failed, dead_letters, reconcile, subscribers, config)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: fine, 1: the work failed, 2: the call or the configuration is wrong."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if (place := not_text(words)) is not None:
        return _complain(f"argument {place} is not UTF-8; nothing was done", MISUSED)
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help(sys.stderr)
        return MISUSED
    try:
        return int(options.command(options))
    except (ConfigurationError, relay_errors.ConfigurationError) as error:
        return _complain(_COMPLAINTS.said(error, str(error)), MISUSED)
    except relay_errors.MigrationError as error:
        return _complain(_COMPLAINTS.said(error, str(error)), FAILED)
    except (relay_errors.RelayError, StoreUnavailableError) as error:
        return _complain(_COMPLAINTS.said(error, told(error)), FAILED)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # what nobody foresaw must not pass the user's hook by
        if _of_database(error):
            return _complain(_COMPLAINTS.said(error, told_of_database(error)), FAILED)
        if (trace := _COMPLAINTS.unforeseen(error)) is None:
            raise
        return _complain(trace, FAILED)


def _complain(error: object, code: int) -> int:
    complain("consumers", error)
    return code


def _of_database(error: Exception) -> bool:
    """Whether it is one of psycopg's, which is loaded where a command asks a database and nowhere else."""
    driver = sys.modules.get("psycopg")
    return driver is not None and isinstance(error, driver.Error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="consumers",
        description="Acts on the events of subscriptions, each once in effect.",
        epilog="Settings come from the environment and from .env; start with PUBSUB_PROJECT_ID and REDIS_URL; "
        "for dedup='inbox', DATABASE_URL in place of REDIS_URL.",
    )
    parser.set_defaults(command=None)
    parser.add_argument("--version", action="version", version=version_line())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
