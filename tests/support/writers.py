"""Services that emit in the model tests: several transactions at once, committed late or rolled back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg import errors as pg

from relay import Event, emit
from relay.routes import Routes
from tests.support.ledger import Known, Ledger
from tests.support.outbox import event
from tests.support.roles_of_tests import owning

# Of a row that was written by hand, and has an attribute that no message may have.
UNBUILDABLE = "unbuildable"
_BY_HAND = """update outbox_events set attributes = '{"googclient": "x"}' where id = %s"""
# Long after the test, unless somebody makes it due.
LATER = timedelta(days=1)
# What waiting for another writer ends in, and a snapshot that is too old to see a dedup_key: a service tries again.
_IN_VAIN = (pg.LockNotAvailable, pg.SerializationFailure, pg.ObjectNotInPrerequisiteState)


@dataclass(frozen=True, slots=True)
class Spec:
    """An event to be."""

    event_type: str = "order.paid"
    key: str | None = None
    topic: str | None = None
    dedup_key: str | None = None
    scheduled: bool = False
    sick: str | None = None  # the error that its message draws, or UNBUILDABLE


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
        self.connection.execute("select set_config('lock_timeout', '20ms', true)")
        self.open = True

    def emit(self, specs: Sequence[Spec], *, bulk: bool, bold: bool = False) -> None:
        """Store events one by one or all at once; unless bold, none of those that would wait for another writer."""
        taken = set().union(*(other.holds for other in self.all if other is not self))
        free = [spec for spec in specs if bold or not taken & _locks(spec)]
        try:
            for part in [free] if bulk else [[spec] for spec in free]:
                self._store(part)
        except _IN_VAIN:
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
        for spec, stored in zip(specs, emit(self.connection, map(_event, specs)), strict=True):
            event_id = str(stored.event_id)
            if not stored.inserted:
                assert event_id in self.ledger.events, f"{spec.dedup_key} is answered with a stranger"
                continue
            if spec.sick == UNBUILDABLE:
                with owning(self.connection):
                    self.connection.execute(_BY_HAND, [stored.sequence])
            known = Known(
                event_id,
                stored.sequence,
                spec.key,
                spec.event_type,
                self.routes.topic_of(spec.topic, spec.event_type),
                None if spec.sick == UNBUILDABLE else spec.sick,
                ever_sick=spec.sick is not None,
                unbuildable=spec.sick == UNBUILDABLE,
            )
            self.ledger.events[event_id] = known
            self.emitted.append(known)


def _event(spec: Spec) -> Event:
    return event(
        event_type=spec.event_type,
        ordering_key=spec.key,
        topic=spec.topic,
        dedup_key=spec.dedup_key,
        available_at=datetime.now(UTC) + LATER if spec.scheduled else None,
    )


def _locks(spec: Spec) -> set[str]:
    return {lock for lock in (spec.key and f"key {spec.key}", spec.dedup_key and f"dedup {spec.dedup_key}") if lock}
