"""Services that emit in the model tests: several transactions at once, committed late or rolled back."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg import errors as pg

from relay import emit
from relay.routes import Routes
from tests.support.ledger import Known, Ledger
from tests.support.outbox import event

# No topic has a name so short, and so no message can be built.
UNBUILDABLE = "no"
# What a snapshot that is too old to see a dedup_key ends in; a service runs its transaction again.
_TOO_OLD = (pg.SerializationFailure, pg.ObjectNotInPrerequisiteState)


@dataclass(frozen=True, slots=True)
class Spec:
    """An event to be."""

    event_type: str = "order.paid"
    key: str | None = None
    topic: str | None = None
    dedup_key: str | None = None
    scheduled: bool = False
    sick: str | None = None  # the error that its message draws; "unbuildable"


@dataclass(slots=True)
class Writer:
    """One of several sessions that emit."""

    connection: psycopg.Connection[Any]
    ledger: Ledger
    routes: Routes
    all: Sequence["Writer"]  # this one among them
    open: bool = False
    emitted: list[Known] = field(default_factory=list)
    holds: set[str] = field(default_factory=set)  # keys for which others would have to wait

    def begin(self, isolation: IsolationLevel) -> None:
        """Open a transaction, whose snapshot is this moment's where it has one for all of it."""
        self.connection.isolation_level = isolation
        self.connection.execute("select 1")
        self.open = True

    def emit(self, specs: Sequence[Spec], *, bulk: bool) -> None:
        """Store events one by one or all at once; those that would wait for another writer are left out."""
        taken = set().union(*(other.holds for other in self.all if other is not self))
        free = [spec for spec in specs if not taken & _locks(spec)]
        try:
            for part in [free] if bulk else [[spec] for spec in free]:
                self._store(part)
        except _TOO_OLD:
            self.end(commit=False)

    def end(self, *, commit: bool) -> None:
        """Commit or roll back."""
        if commit:
            self.connection.commit()
            self.ledger.committed(self.emitted)
        else:
            self.connection.rollback()
        for known in [] if commit else self.emitted:
            del self.ledger.events[known.event_id]
        self.emitted, self.holds, self.open = [], set(), False

    def _store(self, specs: Sequence[Spec]) -> None:
        self.holds.update(*map(_locks, specs))
        for spec, (event_id, row_id, inserted) in zip(specs, self._emit(specs), strict=True):
            if not inserted:
                assert event_id in self.ledger.events, f"{spec.dedup_key} is answered with a stranger"
                continue
            known = Known(
                event_id,
                row_id,
                spec.key,
                spec.event_type,
                self.routes.topic_of(spec.topic, spec.event_type),
                None if spec.sick == "unbuildable" else spec.sick,
                ever_sick=spec.sick is not None,
            )
            self.ledger.events[event_id] = known
            self.emitted.append(known)

    def _emit(self, specs: Sequence[Spec]) -> Iterator[tuple[str, int, bool]]:
        if any(spec.sick == "unbuildable" for spec in specs):
            # Python would refuse it; another language does not.
            yield from self._emit_in_sql(specs)
            return
        events = [
            event(
                event_type=spec.event_type,
                ordering_key=spec.key,
                topic=spec.topic,
                dedup_key=spec.dedup_key,
                available_at=_later() if spec.scheduled else None,
            )
            for spec in specs
        ]
        for stored in emit(self.connection, events):
            yield str(stored.event_id), stored.sequence, stored.inserted

    def _emit_in_sql(self, specs: Sequence[Spec]) -> Iterator[tuple[str, int, bool]]:
        events: list[dict[str, Any]] = [
            {
                "event_type": spec.event_type,
                "aggregate_type": "order",
                "aggregate_id": "0",
                "data": {},
                "ordering_key": spec.key,
                "topic": UNBUILDABLE if spec.sick == "unbuildable" else spec.topic,
                "dedup_key": spec.dedup_key,
                "available_at": _later().isoformat() if spec.scheduled else None,
            }
            for spec in specs
        ]
        query = "select event_id::text, sequence, inserted from outbox_emit(%s::jsonb)"
        yield from self.connection.execute(query, [json.dumps(events)]).fetchall()


def _locks(spec: Spec) -> set[str]:
    return {lock for lock in (spec.key and f"key {spec.key}", spec.dedup_key and f"dedup {spec.dedup_key}") if lock}


def _later() -> datetime:
    """Long after the test, unless somebody makes it due."""
    return datetime.now(UTC) + timedelta(days=1)
