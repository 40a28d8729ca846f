"""Whether what an event tells of is still so: its source row, read again on the handler's own connection."""

import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from consumers.errors import UsageError
from consumers.outdated import OutdatedError
from relay.adapters.adapter import AsyncAdapter, Call, SyncAdapter
from relay.adapters.find import adapter_of, refused, remedy_of

Lock = Literal["share", "update"]
Still = Callable[[dict[str, Any]], object]

_TAKES: Final = "ctx.guard takes a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django"
_UNKEPT: Final = "what is found would hold for this statement alone, and no lock would outlast it"
_VALUES: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_TABLES: Final = 256
# `no key`: nobody can change or remove the row, and rows that refer to it can still be inserted.
_LOCKS: Final = {None: "", "share": "for share of t", "update": "for no key update of t"}


class SourceRow(dict[str, Any]):
    """A row by the names of its columns, its values as in JSON.

    Where the connection is asynchronous it is read when it is awaited; where not, it is there, and can be awaited too.
    """

    def __init__(self, values: Iterable[tuple[str, Any]] = (), reading: Coroutine[Any, Any, Any] | None = None) -> None:
        super().__init__(values)
        self._reading = reading

    def __await__(self) -> Generator[Any, None, "SourceRow"]:
        if self._reading is not None:
            reading, self._reading = self._reading, None
            self.update((yield from reading.__await__()))
        return self


@dataclass(frozen=True, slots=True)
class _Question:
    """Names are the database's, to the letter."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    watched: tuple[str, ...]
    lock: Lock | None

    @property
    def shown(self) -> tuple[str, ...]:
        """What is read, each once."""
        return tuple(dict.fromkeys((*self.key, *self.columns, *self.watched)))


def guard(  # noqa: PLR0913 -- each by its name
    connection: Any,
    table: str,
    key: Mapping[str, Any],
    *,
    columns: Sequence[str] = (),
    watched: Mapping[str, Any],
    still: Still | None = None,
    lock: Lock | None = None,
) -> SourceRow:
    """Read the row again. Raises OutdatedError where it is not as the event has it."""
    question = _asked(table, key, columns, watched, lock)
    adapter = adapter_of(connection)
    if adapter is None:
        raise refused(_TAKES, connection, remedy_of(connection))
    try:
        said = _VALUES.dump_json({"key": dict(key), "watched": dict(watched)}).decode()
    except ValueError as error:
        raise UsageError(f"ctx.guard: the key or a watched value is no JSON: {type(error).__name__}") from None
    match adapter:
        case SyncAdapter(store):
            return SourceRow(_judged(question, still, store(connection, said, _call(question))).items())
        case AsyncAdapter(store_async):

            async def read() -> dict[str, Any]:
                return _judged(question, still, await store_async(connection, said, _call(question)))

            return SourceRow(reading=read())


def _asked(
    table: str, key: Mapping[str, Any], columns: Sequence[str], watched: Mapping[str, Any], lock: Lock | None
) -> _Question:
    if lock not in _LOCKS:
        raise UsageError(f"ctx.guard: lock is {lock!r:.40}; write 'share', 'update', or nothing")
    if not key or any(value is None for value in key.values()):
        raise UsageError(
            f"ctx.guard({table!r:.80}): the key names no row; give each column of a unique key and its value"
        )
    if isinstance(columns, str):
        raise UsageError(f"ctx.guard: columns is the text {columns!r:.80}; give a list of names")
    names: tuple[object, ...] = (table, *key, *columns, *watched)
    if not all(isinstance(name, str) and name.strip() and "\0" not in name for name in names):
        raise UsageError("ctx.guard: the names of a table and of columns are texts, and not empty")
    return _Question(table, tuple(key), tuple(columns), tuple(watched), lock)


@lru_cache(_TABLES)
def _call(question: _Question) -> Call:
    """The statement that reads the row.

    Values reach it as JSON and take the types of their columns: two times are the same moment in whatever zone they
    are written, two numbers the same in however many digits.
    """
    table = ".".join(map(_quoted, question.table.split(".", 1)))
    shown = ", ".join(f"t.{_quoted(name)}" for name in question.shown)
    changed = ", ".join(
        f"to_jsonb(t.{name}) is distinct from to_jsonb(w.{name})" for name in map(_quoted, question.watched)
    )
    found = " and ".join(f"t.{name} = k.{name}" for name in map(_quoted, question.key))
    return Call(
        "select cast(json_build_array(\n"  # noqa: S608 -- every name is quoted
        f"  row_to_json((select shown from (select {shown}) as shown)),\n"
        f"  json_build_array({changed})\n"
        ") as text)\n"
        "from (select\n",
        _UNKEPT,
        "\n) as said(doc)\n"
        f"cross join lateral jsonb_populate_record(cast(null as {table}), said.doc -> 'key') as k\n"
        f"cross join lateral jsonb_populate_record(cast(null as {table}), said.doc -> 'watched') as w\n"
        f"join {table} as t on {found}\n"
        f"limit 2 {_LOCKS[question.lock]}",
    )


def _quoted(name: str) -> str:
    """A name as an identifier, without any character that a driver may take for a parameter of its own."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return f'"{name}"'
    return 'U&"' + "".join(each if each.isascii() and each.isalnum() else f"\\+{ord(each):06x}" for each in name) + '"'


def _judged(question: _Question, still: Still | None, answers: Sequence[str | bytes]) -> dict[str, Any]:
    table = question.table
    if not answers:
        raise OutdatedError("gone", f"{table} has no such row any more")
    if len(answers) > 1:
        raise UsageError(f"ctx.guard: several rows of {table} have this {', '.join(question.key)}; give a unique key")
    row, changes = json.loads(answers[0])
    if still is not None:
        holds = still(row)
        if not isinstance(holds, bool):
            raise UsageError(f"ctx.guard: still answered with {type(holds).__name__}, not True or False")
        if not holds:
            raise OutdatedError("condition", f"the row of {table} does not meet the condition any more")
    if any(changes):
        names = [name for name, changed in zip(question.watched, changes, strict=True) if changed]
        raise OutdatedError("changed", f"{', '.join(names)} of the row of {table}")
    return dict(row)
