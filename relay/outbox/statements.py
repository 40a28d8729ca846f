"""The SQL that runs at work: one statement a file, in `sql/`."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> bytes:
    """The text of `sql/<name>.sql`."""
    return (files("relay.outbox") / "sql" / f"{name}.sql").read_bytes()
