"""Reads the command line, and turns every error that was foreseen into a sentence and an exit code."""

import argparse
import sys
from collections.abc import Sequence

import psycopg

from relay.cli import (
    adopt,
    archive,
    audit,
    config,
    dev,
    doctor,
    emit,
    failed,
    forget,
    grants,
    migrate,
    run,
    runs,
    status,
    topics,
)
from relay.cli.parts import warned
from relay.errors import BrokerError, ConfigurationError, RelayError
from relay.kernel.command import FAILED, MISUSED, complain, not_text, version_line
from relay.kernel.complaints import Complaints
from relay.kernel.failure import told, told_of_database
from relay.settings import load

_COMPLAINTS = Complaints("relay", (ConfigurationError,), load, warned)


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
    except ConfigurationError as error:
        return _complain(_COMPLAINTS.said(error, str(error)), MISUSED)
    except BrokerError as error:
        return _complain(_COMPLAINTS.said(error, told(error)), FAILED)
    except RelayError as error:
        return _complain(_COMPLAINTS.said(error, str(error)), FAILED)
    except psycopg.Error as error:
        return _complain(_COMPLAINTS.said(error, told_of_database(error)), FAILED)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # what nobody foresaw must not pass the user's hook by
        if (trace := _COMPLAINTS.unforeseen(error)) is None:
            raise
        return _complain(trace, FAILED)


def _complain(error: object, code: int) -> int:
    complain("relay", error)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="relay",
        description="Carries events from a Postgres outbox to a message broker.",
        epilog="Settings come from the environment and from .env; start with DATABASE_URL and PUBSUB_PROJECT_ID.",
    )
    parser.set_defaults(command=None)
    parser.add_argument("--version", action="version", version=version_line())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    emit.add_to(commands)
    run.add_to(commands)
    migrate.add_to(commands)
    grants.add_to(commands)
    status.add_to(commands)
    failed.add_to(commands)
    runs.add_to(commands)
    forget.add_to(commands)
    doctor.add_to(commands)
    topics.add_to(commands)
    config.add_to(commands)
    audit.add_to(commands)
    archive.add_to(commands)
    adopt.add_to(commands)
    dev.add_to(commands)
    return parser
