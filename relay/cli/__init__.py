"""The commands. Each is one function that builds its parts from the settings and hands over to them."""

from relay.cli.main import main

__all__ = ["main"]
