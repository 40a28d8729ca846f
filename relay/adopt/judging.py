"""Rows of the old table, judged as the events that a take-over would make of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg

from relay.adopt.queries import Key
from relay.adopt.session import Session
from relay.errors import ConfigurationError
from relay.kernel.failure import told

PAGE = 500
# Classes of errors that are of one row: its data, or what a function of the database says of it.
_OF_A_ROW = ("22", "23", "P0")
# What outbox_fault quotes of the row is not shown, and does not keep equal faults apart.
_VALUES = (
    (re.compile(r"^(event_id|version|occurred_at|available_at) .* (is not a|is not an) ", re.DOTALL), r"\1 \2 "),
    (re.compile(r"^attribute '.*'(?=:? (names|is|has))", re.DOTALL), "an attribute"),
    (
        re.compile(r"\bhas (a name of |a value of )?[0-9]+ (bytes|attributes)"),
        r"has \1a number of \2 that is not allowed",
    ),
    (re.compile(r"^has the unknown field .*", re.DOTALL), "has an unknown field"),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A row: why it is no event, if it is none, and in which fields the outbox has its event otherwise."""

    key: Key
    fault: str | None
    size: int = 0
    known: bool = False
    different: Sequence[str] = ()
    event_id: str | None = None
    dedup_key: str | None = None
    ordering_key: str | None = None  # as a hash
    occurred: float | None = None
    pending: bool = True


def pages(session: Session, *, pending: bool = True, after: Key | None = None) -> Iterator[list[Key]]:
    """The ids of the rows that wait, in their order, each page in a transaction of its own."""
    while page := next_page(session, after, PAGE, pending=pending):
        yield page
        after = page[-1]


def next_page(
    session: Session, after: Key | None, rows: int, *, pending: bool = True, last: Key | None = None
) -> list[Key]:
    """The ids of so many rows, by the index of the ids; none beyond the last."""
    queries = session.queries
    query = queries.page(after, pending=pending, last=last)
    values = {"rows": rows, **queries.key("after", after), **queries.key("last", last)}
    with session.transaction():
        try:
            found = session.connection.execute(query, values).fetchall()
        except pg.DataError as error:
            raise ConfigurationError(f"--pending fails for a row: {told(error)}") from error
    return [tuple(row) for row in found]


def judged(session: Session, keys: Sequence[Key]) -> list[Judged]:
    """Judge these rows, which are in their order; one whose mapping fails is found among the others."""
    if not keys:
        return []
    try:
        with session.transaction():
            rows = session.connection.execute(session.queries.judge(), session.queries.values(keys)).fetchall()
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if state == pg.ReadOnlySqlTransaction.sqlstate:
            raise ConfigurationError(f"a mapping writes to the database: {told(error)}; map what a row has") from error
        if not state.startswith(_OF_A_ROW) and state != pg.StatementTooComplex.sqlstate:
            raise
        if len(keys) == 1:
            return [_failed(keys[0], error)]
        half = len(keys) // 2
        return judged(session, keys[:half]) + judged(session, keys[half:])
    return [_read(row, len(session.table.ids)) for row in rows]


def newest(session: Session, rows: int, *, sent: bool) -> list[Key]:
    """The ids of the last so many rows, in their order; with `sent`, of those that wait no more."""
    with session.transaction():
        found = session.connection.execute(session.queries.newest(sent=sent), {"rows": rows}).fetchall()
    return [tuple(row) for row in reversed(found)]


def key_shown(key: Key) -> str:
    """An id for an operator."""
    return ", ".join(key)


def _failed(key: Key, error: psycopg.Error) -> Judged:
    return Judged(key, fault=f"its mapping fails: {told(error)}")


def _read(row: Sequence[Any], ids: int) -> Judged:
    fault, *others = row[ids:]
    return Judged(tuple(row[:ids]), None if fault is None else _without_values(fault), *others)


def _without_values(fault: str) -> str:
    for pattern, words in _VALUES:
        fault = pattern.sub(words, fault)
    return fault
