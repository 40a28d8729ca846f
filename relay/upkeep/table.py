"""Rows of a table that are over: which, how they are told from the others, and where they go."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from relay.errors import ConfigurationError
from relay.kernel.code_duration import Duration, read, shown

Destination = Literal["nowhere", "archive"]
_MOST_A_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Child:
    """Rows of another table that go with a row, in the same statement: `column` refers to the key of theirs."""

    name: str
    """The table, with its schema unless it is that of the parent."""
    column: str
    age: str
    """When the child was made: by its month it is archived. No null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a mover works on. Raises ConfigurationError for what cannot be; the database is asked later.

    `where` is SQL of your own about a row, and trusted. `age` is a timestamp, or a date; a row without one stays.
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

    def __post_init__(self) -> None:
        try:
            after = read(self.older_than)
        except ValueError as fault:
            raise ConfigurationError(f"table {shown(self.name)}: older_than {fault}") from None
        for what, names in (
            ("name", (self.name, *(child.name for child in self.children))),
            ("columns", (self.age, *self.key, *filter(None, [self.born]), *(child.column for child in self.children))),
        ):
            for each in names:
                if not _is_name(each):
                    raise ConfigurationError(f"table {shown(self.name)}: {shown(each)} is none of its {what}")
        if self.to not in get_args(Destination):
            raise ConfigurationError(f"table {self.name!r}: to is {shown(self.to)}; write nowhere or archive")
        if not 1 <= self.batch <= _MOST_A_BATCH or not self.rate > 0:
            raise ConfigurationError(
                f"table {self.name!r}: batch is {shown(self.batch)} and rate {shown(self.rate)}; "
                f"give 1 to {_MOST_A_BATCH:,} rows a batch, and a rate above zero"
            )
        if self.children and len(self.key) > 1:
            raise ConfigurationError(f"table {self.name!r}: children refer to one column, and its key has several")
        object.__setattr__(self, "after", after)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and "\0" not in name
