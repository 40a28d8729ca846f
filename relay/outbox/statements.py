"""The SQL that runs at work: one statement a file, in `sql/`."""

from functools import cache
from importlib.resources import files

from psycopg import sql


@cache
def statement(name: str) -> bytes:
    """The text of `sql/<name>.sql`."""
    return (files("relay.outbox") / "sql" / f"{name}.sql").read_bytes()


def search_path(schema: str) -> str:
    """Where unqualified names are looked up: in the outbox's schema, and nowhere before it."""
    return f"{sql.Identifier(schema).as_string(None)}, pg_temp"
