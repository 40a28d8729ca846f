"""The shadow of a take-over: what it would do with every row, found out without changing anything."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import errors as pg

from relay.adopt.judging import PAGE, Judged, judged, key_shown, newest, pages
from relay.adopt.queries import Key
from relay.adopt.session import Session
from relay.errors import ConfigurationError
from relay.kernel.failure import told

Progress = Callable[[str, int], None]

# So many ids are shown of each kind, so many event_ids compared with each other, and keys followed.
SHOWN = 5
REMEMBERED = 1_000_000
SENT = 1_000


@dataclass(slots=True)
class Found:
    """How many rows, and the first of them."""

    rows: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, key: Key) -> None:
        """One more."""
        self.rows += 1
        if len(self.first) < SHOWN:
            self.first.append(key_shown(key))

    def join(self, other: "Found") -> None:
        """Those of another reason as well."""
        self.rows += other.rows
        self.first = [*self.first, *other.first][:SHOWN]

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {"rows": self.rows, "first": self.first}


@dataclass(slots=True)
class Comparison:
    """What a take-over would find. The rows of `sent` wait no more, and tell how the next ones will be."""

    table: str
    taken_over: bool
    paged: bool
    warnings: list[str] = field(default_factory=list)
    pending: int = 0
    sent: int = 0
    taken: int = 0
    known: int = 0
    refused: dict[str, Found] = field(default_factory=dict)
    different: dict[str, Found] = field(default_factory=dict)
    repeated: Found = field(default_factory=Found)
    merged: Found = field(default_factory=Found)
    disordered: Found = field(default_factory=Found)
    wrong: Found = field(default_factory=Found)
    wrong_sent: int = 0
    oldest: float | None = None
    mark_fails: str | None = None
    _event_ids: dict[str, Key] = field(default_factory=dict)
    _dedup_keys: dict[str, Key] = field(default_factory=dict)
    _latest: dict[str, float] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether every row is as it should be; one that was sent would be in the way of no take-over."""
        return not (self.wrong.rows or self.mark_fails)

    def add(self, row: Judged) -> None:
        """Count one more row, which comes after those before in the order of ids."""
        if row.pending:
            self.pending += 1
            if row.occurred is not None:
                self.oldest = row.occurred if self.oldest is None else min(self.oldest, row.occurred)
        else:
            self.sent += 1
        if self._is_wrong(row):
            self.wrong.add(row.key)
            self.wrong_sent += not row.pending
        elif row.known:
            self.known += 1
        elif row.pending:
            self.taken += 1
        if row.pending:
            self._follow(row)

    def reword(self, told: Callable[[str], str]) -> None:
        """Say otherwise what is wrong; reasons that are told alike become one."""
        refused: dict[str, Found] = {}
        for reason, found in self.refused.items():
            refused.setdefault(told(reason), Found()).join(found)
        self.refused = refused
        self.mark_fails = self.mark_fails and told(self.mark_fails)

    def as_json(self) -> dict[str, Any]:
        """For scripts; of rows that are not as they should be, the first ids."""
        age = None if self.oldest is None else round(max(0.0, time.time() - self.oldest), 3)
        return {
            "table": self.table,
            "clean": self.clean,
            "taken_over": self.taken_over,
            "seen": self.pending + self.sent,
            "pending": self.pending,
            "sent": self.sent,
            "would_be_taken": self.taken,
            "in_the_outbox": self.known,
            "refused": {reason: found.as_json() for reason, found in self.refused.items()},
            "different": {name: found.as_json() for name, found in self.different.items()},
            "repeated_event_id": self.repeated.as_json(),
            "repeated_dedup_key": self.merged.as_json(),
            "out_of_order": self.disordered.as_json(),
            "mark_fails": self.mark_fails,
            "warnings": self.warnings,
            "oldest_pending_seconds": age,
        }

    def _is_wrong(self, row: Judged) -> bool:
        if row.fault is not None:
            self.refused.setdefault(row.fault, Found()).add(row.key)
            return True
        for name in row.different:
            self.different.setdefault(name, Found()).add(row.key)
        first = _first(self._event_ids, row.event_id and row.event_id.lower(), row.key)
        if first is not None:
            self.repeated.add(row.key)
        return bool(row.different) or first is not None

    def _follow(self, row: Judged) -> None:
        """What is worth knowing of rows that are right."""
        if _first(self._dedup_keys, row.dedup_key, row.key) is not None:
            self.merged.add(row.key)
        if row.ordering_key is None or row.occurred is None:
            return
        latest = self._latest.get(row.ordering_key)
        if latest is not None and row.occurred < latest:
            self.disordered.add(row.key)
        elif latest is not None or len(self._latest) < REMEMBERED:
            self._latest[row.ordering_key] = row.occurred


def compare(session: Session, progress: Progress, sent: int = SENT) -> Comparison:
    """Judge every row that waits, and the last so many that do not; the connection is best read-only."""
    comparison = begun(session)
    for page in pages(session):
        _add(comparison, judged(session, page))
        progress("rows compared", comparison.pending)
    for keys in _chunks(newest(session, sent, sent=True) if sent else []):
        _add(comparison, judged(session, keys))
        progress("rows compared", comparison.pending + comparison.sent)
    return comparison


def begun(session: Session) -> Comparison:
    """Nothing is compared yet but the mark, by the first row that waits."""
    comparison = Comparison(str(session), session.table.taken_over, session.table.paged, list(_warnings(session)))
    if (query := session.queries.left_pending()) is not None:
        try:
            with session.transaction():
                row = session.connection.execute(query, {"rows": 1}).fetchone()
        except (pg.DataError, pg.IntegrityError, pg.RaiseException) as error:
            comparison.mark_fails = f"--mark fails: {told(error)}"
            return comparison
        except pg.ReadOnlySqlTransaction as error:
            raise ConfigurationError(f"--mark writes elsewhere: {told(error)}; assign what a row has") from error
        if row is not None and row[0]:
            comparison.mark_fails = "--mark leaves a row as --pending has it; it would be taken again and again"
    return comparison


def _warnings(session: Session) -> Iterator[str]:
    """What is known of the table alone."""
    if not session.table.paged:
        yield "no index has the rows in the order of --id: each page reads and sorts the whole table"
    first = session.table.ids[0]
    if first.type == "uuid" and "ordering_key" in session.mapping.fields:
        yield (
            f"--id begins with {first.name}, a UUID: unless of version 7 it has no order of its own, and rows of a key "
            "would be in any; put a time before it, like --id created_at --id id"
        )


def _add(comparison: Comparison, rows: Iterable[Judged]) -> None:
    for row in rows:
        comparison.add(row)


def _chunks(keys: Sequence[Key]) -> Iterable[Sequence[Key]]:
    return (keys[first : first + PAGE] for first in range(0, len(keys), PAGE))


def _first(seen: dict[str, Key], name: str | None, key: Key) -> Key | None:
    """Another row that has the name, if one was seen; those that come late are not remembered."""
    if name is None:
        return None
    first = seen.get(name)
    if first is None and len(seen) < REMEMBERED:
        seen[name] = key
    return first if first != key else None
