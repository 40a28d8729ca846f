"""What a table is called, as code writes it and as Postgres has it."""

import re
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from relay.kernel.code_duration import shown

# The schema of tables that rows are put aside in.
ARCHIVE: Final = "archive"
# Postgres cuts a longer name, and would find another table by it.
MOST_BYTES: Final = 63
_PART = r'("(?:[^"\0]|"")+"|[^".\0]+)'
_NAME = re.compile(rf"(?:{_PART}\.)?{_PART}")


@dataclass(frozen=True, slots=True)
class TableName:
    """Its schema and its name, exactly as they are: capitals count, and nothing is quoted."""

    schema: str
    name: str

    @classmethod
    def of(cls, text: object, schema: str = "public") -> "TableName":
        """Read sources, shop.sources, or shop."with.dot". Raises ValueError with one sentence."""
        found = _NAME.fullmatch(text) if isinstance(text, str) else None
        # The schema that is taken where the text names none is no text: it may begin with a quote of its own.
        parts = [schema if part is None else _unquoted(part) for part in found.groups()] if found else []
        if not parts or not all(part.strip() and len(part.encode()) <= MOST_BYTES for part in parts):
            raise ValueError(
                f'{shown(text)} is no name of a table; write it like sources, shop.sources or shop."with.dot", of up '
                f"to {MOST_BYTES} bytes each"
            )
        return cls(parts[0], parts[1])

    @property
    def sql(self) -> sql.Identifier:
        """As a statement has it."""
        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.name)}"


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quoted(part: str) -> str:
    escaped = part.replace('"', '""')
    return f'"{escaped}"' if "." in part or '"' in part else part
