"""The SQL that runs at work: one statement a file, in the folder `sql/` of whoever says it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from psycopg import sql


@dataclass(frozen=True, slots=True)
class Statements:
    """Those of one package, each by its name; `first+second` is one that goes on in a second file, as others do."""

    package: str

    def __call__(self, name: str) -> bytes:
        """The text of `sql/<name>.sql`."""
        return _text(self.package, name)


@cache
def _text(package: str, name: str) -> bytes:
    folder = files(package) / "sql"
    return b"".join((folder / f"{part}.sql").read_bytes() for part in name.split("+"))


def search_path(schema: str) -> str:
    """Where unqualified names are looked up: in this schema, and nowhere before it."""
    return f"{sql.Identifier(schema).as_string(None)}, pg_temp"


def numbers(values: Iterable[float]) -> str:
    """An array of numbers, written at once: psycopg writes it item by item."""
    return f"{{{','.join(map(str, values))}}}"


def numbers_or_null(values: Iterable[float | None]) -> str:
    """The same, of which some may be missing."""
    return f"{{{','.join('null' if value is None else str(value) for value in values)}}}"


def texts(values: Sequence[str]) -> str:
    """An array of texts, written at once as well."""
    if not values:
        return "{}"
    together = '","'.join(values)
    if together.count('"') != 2 * (len(values) - 1) or "\\" in together:
        together = '","'.join(value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return f'{{"{together}"}}'
