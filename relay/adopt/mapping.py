"""What an operator says of an old outbox: where its rows are, which of them wait, and how each is an event."""

from collections.abc import Mapping as Pairs
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from relay.errors import ConfigurationError

REQUIRED = ("event_type", "aggregate_type", "aggregate_id", "data")
OPTIONAL = (
    "event_id",
    "occurred_at",
    "version",
    "actor",
    "attributes",
    "ordering_key",
    "dedup_key",
    "topic",
    "available_at",
)
FIELDS = (*REQUIRED, *OPTIONAL)
_DELETE = "delete"


class Refused(Enum):
    """What becomes of an insert into the old table whose row is no event, once the table is taken over."""

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Update:
    """A row is marked by what is assigned to its columns."""

    assignments: Pairs[str, str]


@dataclass(frozen=True, slots=True)
class Delete:
    """A row is marked by being deleted."""


Mark = Update | Delete


@dataclass(frozen=True, slots=True)
class Mapping:
    """The words of the operator, of which nothing but their form is known yet."""

    table: str
    ids: Sequence[str]
    pending: str
    mark: Mark
    fields: Pairs[str, str]


def mapping(table: str, ids: Sequence[str], pending: str, marks: Sequence[str], maps: Sequence[str]) -> Mapping:
    """Read the words of a call. Raises ConfigurationError where they can mean nothing."""
    fields = _assignments("--map", "aggregate_id=order_id", maps)
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise ConfigurationError(f"--map has the unknown field {unknown[0][:64]!r}; fields are {', '.join(FIELDS)}")
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        raise ConfigurationError(
            f"--map is missing for {', '.join(missing)}; write it like --map aggregate_id=order_id"
        )
    if "available_at" in fields and "ordering_key" in fields:
        raise ConfigurationError("--map has available_at and ordering_key, which exclude each other; keep one")
    if not pending.strip():
        raise ConfigurationError('--pending is empty; say which rows still wait, like --pending "sent_at is null"')
    columns = [column(text) for text in ids]
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"--id names {', '.join(columns)}; name each column once")
    return Mapping(table, columns, pending.strip(), _mark(marks), fields)


def column(text: str) -> str:
    """The name of a column as the catalogue has it; in double quotes it is taken literally, as in SQL."""
    name = text.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def _mark(marks: Sequence[str]) -> Mark:
    if [text.strip().lower() for text in marks] == [_DELETE]:
        return Delete()
    assigned = _assignments("--mark", "sent_at=now()", marks)
    return Update({column(name): expression for name, expression in assigned.items()})


def _assignments(option: str, example: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, expression = (part.strip() for part in text.partition("="))
        if not (name and equals and expression):
            raise ConfigurationError(
                f"{option} {text[:64]!r} has no name, no = or nothing behind it; like {option} {example}"
            )
        if name in found:
            raise ConfigurationError(f"{option} has {name[:64]!r} twice; keep one")
        found[name] = expression
    return found
