"""Rows of a table that are over: which, how they are told from the others, and where they go."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite
from typing import Literal, get_args

from relay.errors import ConfigurationError
from relay.kernel.code_duration import Duration, read, shown
from relay.upkeep.table_name import TableName

Destination = Literal["nowhere", "archive"]
_MOST_A_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Child:
    """Rows of another table that go with a row, in the same statement: `column` refers to the key of theirs."""

    name: str
    """The table, with its schema unless it is that of the parent."""
    column: str
    """It needs an index that begins with it."""
    age: str
    """When the child was made: by its month it is archived. No null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a mover works on. Raises ConfigurationError for what cannot be; the database is asked later.

    Names are as Postgres has them: capitals count. `where` is SQL of your own about a row, and trusted; times of day in
    it are UTC. `age` is a timestamp, or a date; a row without one stays.
    """

    name: str
    """The table, such as sources, or shop.sources; public where there is no schema."""
    age: str
    older_than: Duration
    where: str = "true"
    to: Destination = "archive"
    key: tuple[str, ...] = ()
    """The columns that it is walked along, which must have a unique index; the primary key where none are named."""
    born: str | None = None
    """A column that grows with the key and is never later than `age`: a walk ends where it is young."""
    batch: int = 500
    rate: float = 10_000
    """Rows a second at most, of those that are read."""
    children: tuple[Child, ...] = ()
    after: timedelta = field(init=False)
    place: TableName = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "place", TableName.of(self.name))
        except ValueError as fault:
            raise ConfigurationError(f"table {fault}") from None
        try:
            object.__setattr__(self, "after", read(self.older_than))
            for child in self.children:
                TableName.of(child.name)
        except ValueError as fault:
            raise ConfigurationError(f"table {self.name!r}: {fault}") from None
        for wrong in self._wrong():
            raise ConfigurationError(f"table {self.name!r}: {wrong}")

    def _wrong(self) -> Iterator[str]:
        if not isinstance(self.key, tuple):
            yield f"key is {shown(self.key)}; write the names of its columns as a tuple, like key=('id',)"
        born = [] if self.born is None else [self.born]
        of_children = (name for child in self.children for name in (child.column, child.age))
        for name in (self.age, *self.key, *born, *of_children):
            if not _is_name(name):
                yield f"{shown(name)} is no name of a column"
        if self.to not in get_args(Destination):
            yield f"to is {shown(self.to)}; write nowhere or archive"
        if not _is_name(self.where):
            yield f"where is {shown(self.where)}; write a condition in SQL, or leave it out"
        if type(self.batch) is not int or not 1 <= self.batch <= _MOST_A_BATCH:
            yield f"batch is {shown(self.batch)}; give 1 to {_MOST_A_BATCH:,} rows"
        if not _is_positive(self.rate):
            yield f"rate is {shown(self.rate)}; give a number of rows a second above zero"
        if self.children and len(self.key) > 1:
            yield "children refer to one column, and its key has several"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and "\0" not in name


def _is_positive(rate: object) -> bool:
    return isinstance(rate, int | float) and not isinstance(rate, bool) and isfinite(rate) and rate > 0
