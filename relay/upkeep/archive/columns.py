"""Columns of a table: how each travels from Postgres into a file, and back."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from psycopg import sql

from relay.upkeep.archive.moments import DAYS, MICROSECONDS, date_text, since_1970, timestamp_text, timestamptz_text


class Kind(Enum):
    """How the values of a column are kept in a file. Whatever has no kind of its own is kept as Postgres writes it."""

    BOOLEAN = "bool"
    INT2 = "int2"
    INT4 = "int4"
    INT8 = "int8"
    FLOAT4 = "float4"
    FLOAT8 = "float8"
    BYTES = "bytea"
    TEXT = "text"
    VARCHAR = "varchar"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    WRITTEN = "written"

    @classmethod
    def of(cls, type_name: str, schema: str) -> "Kind":
        """That of a type of Postgres; a domain is a type of its own."""
        if schema != "pg_catalog" or type_name == cls.WRITTEN.value:
            return cls.WRITTEN
        return next((kind for kind in cls if kind.value == type_name), cls.WRITTEN)

    @property
    def wire(self) -> str:
        """As which type its binary form is read: times as the numbers that they are, texts as their bytes."""
        match self:
            case Kind.BOOLEAN | Kind.INT2 | Kind.INT4 | Kind.INT8 | Kind.FLOAT4 | Kind.FLOAT8:
                return str(self.value)
            case Kind.DATE:
                return "int4"
            case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
                return "int8"
            case Kind.BYTES | Kind.TEXT | Kind.VARCHAR | Kind.WRITTEN:
                return "bytea"
            case _:
                assert_never(self)

    @property
    def is_wide(self) -> bool:
        """Whether its values are of any length."""
        return self.wire == "bytea"

    @property
    def text(self) -> Callable[[Any], Any]:
        """What COPY is given for a value that came out of a file."""
        match self:
            case Kind.DATE:
                return date_text
            case Kind.TIMESTAMP:
                return timestamp_text
            case Kind.TIMESTAMPTZ:
                return timestamptz_text
            case _:
                return _itself

    def from_wire(self, value: Any) -> str:
        """The text that Postgres reads as this value, which came from it in binary form."""
        match self:
            case Kind.TEXT | Kind.VARCHAR | Kind.WRITTEN:
                return bytes(value).decode()
            case Kind.BYTES:
                return f"\\x{bytes(value).hex()}"
            case Kind.DATE:
                return date_text(since_1970(value, DAYS))
            case Kind.TIMESTAMP:
                return timestamp_text(since_1970(value, MICROSECONDS))
            case Kind.TIMESTAMPTZ:
                return timestamptz_text(since_1970(value, MICROSECONDS))
            case _:
                return str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as the catalogue has it."""

    name: str
    type: str
    """With its schema, unless it is one of Postgres' own, and with its modifier: numeric(10,2)."""
    kind: Kind
    not_null: bool
    generated: bool = False
    """Whether Postgres makes its values from others."""

    @property
    def identifier(self) -> sql.Identifier:
        """Its name, quoted."""
        return sql.Identifier(self.name)

    def selected(self) -> sql.Composable:
        """The expression that reads it, of a row that is called `r`."""
        column = sql.Identifier("r", self.name)
        if self.kind is not Kind.WRITTEN:
            return column
        # Not ::text, which trims char(n) and may be anything for a type of the user's; format() asks the type itself.
        # Not `is null`, which is true of a composite value of nulls, too.
        return sql.SQL("case when {0} is distinct from null then format('%s', {0}) end").format(column)

    def literal(self, text: str) -> sql.Composable:
        """A value of it, from the text that Postgres writes for one."""
        return sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(self.type))


def _itself(value: Any) -> Any:
    return value
