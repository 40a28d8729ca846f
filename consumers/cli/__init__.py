"""The command line: one function for each command, and no logic."""

from consumers.cli.main import main

__all__ = ["main"]
