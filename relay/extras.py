"""How an optional part of the distribution is installed, for errors that find it missing. Imports nothing of it."""

from pathlib import Path


def installed_by(extra: str) -> str:
    """What to run, and where: in the checkout that this code runs from, or in any other."""
    checkout = Path(__file__).parents[1]
    where = checkout if (checkout / "pyproject.toml").exists() else "a checkout of outbox-relay"
    return f"pip install '.[{extra}]' in {where}"
