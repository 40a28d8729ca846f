"""Who acts and why, as commands ask for it that change rows and record it."""

import argparse
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from relay.errors import ConfigurationError

MOST_BY, MOST_WHY = 255, 1_024


class Started(Protocol):
    """The beginning of a command that the database knows of."""

    @property
    def role(self) -> str:
        """As whom it is connected."""


def add_operator(command: argparse.ArgumentParser, why: str) -> None:
    """Add --reason and --by; `why` ends the sentence about the first."""
    command.add_argument("--reason", dest="why", metavar="TEXT", help=f"why you do it; recorded{why}")
    command.add_argument("--by", metavar="NAME", help="who you are; recorded. $USER, or the role of the database")


def judge_operator(options: argparse.Namespace) -> None:
    """Refuse what the record does not hold."""
    for name, text, most in (("--reason", options.why, MOST_WHY), ("--by", options.by, MOST_BY)):
        if text is not None and not (text.strip() and len(text) <= most and "\0" not in text):
            raise ConfigurationError(
                f"{name} has {len(text)} characters, or only blanks; it is recorded, 1 to {most:,}"
            )


async def named_operator(start: Callable[[], Awaitable[Started]]) -> str:
    """Who acts, where nobody says: the user of this machine, or the role of the database."""
    try:
        user = os.environ.get("USER", "").strip() or getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = (await start()).role
    return user[:MOST_BY]
