"""The take-over: the backlog batch by batch, the rest and the trigger in one short transaction, and the way back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from relay.adopt import crash_points
from relay.adopt.comparison import Progress
from relay.adopt.crash_points import Point
from relay.adopt.mapping import Refused
from relay.adopt.moving import Moved, Mover
from relay.adopt.session import Session, enter, require
from relay.adopt.table import placed
from relay.adopt.trigger import make_functions, make_trigger, remove
from relay.errors import ConfigurationError, OperateError
from relay.kernel.failure import told

# One take-over or release of a table at a time: 'outb' in ASCII, with the table's oid.
_LOCK = 0x6F757462
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_TRIES = 5
# What goes away by itself, and leaves the batch undone.
_TRANSIENT = (pg.DeadlockDetected, pg.UniqueViolation, pg.SerializationFailure)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a table is taken over."""

    batch: int = 1_000
    lock_timeout: timedelta = timedelta(seconds=3)  # for it, services wait as long; longer than a deadlock_timeout
    hold: timedelta = timedelta(seconds=10)  # of the last transaction, during which they wait too
    patience: timedelta = timedelta(minutes=5)  # of all attempts to lock the table
    refused: Refused = Refused.FAIL
    publisher_stopped: bool = False


def take_over(session: Session, terms: Terms, progress: Progress) -> Moved:
    """Move every row that waits, and have each new one be an event; again and again, it goes on where it was.

    Call it after a comparison that was clean. Raises OperateError where something is in the way; what was moved stays.
    """
    try:
        return _taken_over(session, terms, progress)
    except pg.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"role {session.connection.info.user!r} may not take over {session}: {error.diag.message_primary}; "
            "run it as the owner of both the table and the outbox"
        ) from error


def _taken_over(session: Session, terms: Terms, progress: Progress) -> Moved:
    _require_owner(session)
    _require_order(session, terms)
    mover = Mover(session, terms.batch)
    deadline, pause = time.monotonic() + terms.patience.total_seconds(), _PAUSE
    while True:
        # Beside a publisher that may run, a row goes when all before it have gone: under the lock alone.
        if not _keeps_order(session, terms):
            _move_backlog(mover, terms, progress)
        try:
            _fence(session, mover, terms)
        except (pg.LockNotAvailable, *_TRANSIENT) as error:
            if time.monotonic() + pause > deadline:
                raise OperateError(_in_the_way(session, terms, error)) from error
            progress("rows moved; the table is in use, trying again", mover.moved.rows)
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
            continue
        except pg.QueryCanceled as error:
            raise OperateError(_too_slow(session, terms)) from error
        crash_points.reached(Point.DONE)
        return mover.moved


def release(connection: psycopg.Connection[Any], outbox_schema: str, name: str, terms: Terms) -> bool:
    """Remove what take_over made; new rows wait again. Answers whether there was anything to remove."""
    require(connection, outbox_schema)

    def removed() -> bool:
        with connection.transaction():
            place = placed(connection, name, outbox_schema)
            enter(connection, outbox_schema, _milliseconds(terms.lock_timeout))
            _alone(connection, place.oid)
            return remove(connection, place)

    deadline, pause = time.monotonic() + terms.patience.total_seconds(), _PAUSE
    while True:
        try:
            return removed()
        except (pg.LockNotAvailable, pg.DeadlockDetected) as error:
            if time.monotonic() + pause > deadline:
                raise OperateError(
                    f"{name} was in use for {terms.patience}, and could not be locked; nothing was changed. Find who "
                    "holds it in pg_stat_activity by its xact_start, let it end, and try again"
                ) from error
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)


def _require_owner(session: Session) -> None:
    """The trigger has the rights of this role, and marks rows: what else is done then is the table owner's to say."""
    row = session.connection.execute("select current_user").fetchone()
    session.connection.rollback()
    if row is not None and row[0] != session.table.owner:
        raise ConfigurationError(
            f"{session} belongs to role {session.table.owner!r} and would be taken over by {row[0]!r}: triggers of its "
            f"owner's would run with the rights of {row[0]!r}. Run it as {session.table.owner!r}, which needs create "
            "on the outbox's schema, select on outbox_events and outbox_migrations, and execute on outbox_emit"
        )


def _keeps_order(session: Session, terms: Terms) -> bool:
    """Whether an old publisher that may run has an order that the relay must not be overtaken in."""
    return "ordering_key" in session.mapping.fields and not terms.publisher_stopped


def _require_order(session: Session, terms: Terms) -> None:
    """Two publishers side by side keep no order: what the old one sends, the relay may have yet to send."""
    if not _keeps_order(session, terms):
        return
    with session.transaction():
        row = session.connection.execute(session.queries.count(), {"rows": terms.batch + 1}).fetchone()
    if row is not None and row[0] > terms.batch:
        raise OperateError(
            f"more than {terms.batch:,} rows of {session} wait, and while they are moved an old publisher that still "
            "runs would overtake the relay within a key; nothing was changed. Stop it and say --publisher-stopped, or "
            "wait until fewer rows wait"
        )


def _move_backlog(mover: Mover, terms: Terms, progress: Progress) -> None:
    """Pass after pass, until one finds less than a batch: services go on inserting."""
    while True:
        before = mover.moved.rows
        mover.restart()
        while _patiently(mover.move):
            progress("rows moved", mover.moved.rows)
        if mover.moved.rows - before < terms.batch:
            return


def _patiently(move: Callable[[], bool]) -> bool:
    for attempt in range(1, _TRIES + 1):
        try:
            return move()
        except _TRANSIENT:
            if attempt == _TRIES:
                raise
            time.sleep(_PAUSE * attempt)
        except pg.LockNotAvailable as error:
            raise OperateError(
                "somebody has locked a row of this batch for a minute; what was moved stays moved. Is an old publisher "
                "stuck? Find it in pg_stat_activity by its xact_start, and run the same command again"
            ) from error
    raise AssertionError  # the last attempt returns or raises


def _fence(session: Session, mover: Mover, terms: Terms) -> None:
    """Lock the table against everybody who writes or locks rows, move what is left, and have the trigger do the rest.

    EXCLUSIVE, not less: a publisher that has locked rows must have ended, or it would wait to mark them for us while we
    wait for its rows. Whoever began earlier and inserts later does so with the trigger.
    """
    connection, moved = session.connection, Moved(mover.moved.rows, mover.moved.stored)
    try:
        with session.transaction(_milliseconds(terms.lock_timeout)):
            _alone(connection, session.table.oid)
            make_functions(session, terms.refused)
            crash_points.reached(Point.FENCE_BEFORE)
            connection.execute(sql.SQL("lock table {} in exclusive mode").format(session.table.identifier))
            connection.execute("select set_config('statement_timeout', %s, true)", (_milliseconds(terms.hold),))
            _move_rest(session, mover, terms)
            crash_points.reached(Point.TRIGGER_BEFORE)
            make_trigger(session)
            crash_points.reached(Point.TRIGGER_AFTER)
    except BaseException:  # whatever it was, this transaction has moved nothing
        mover.moved = moved
        raise


def _alone(connection: psycopg.Connection[Any], table: int) -> None:
    connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK << 32 | table,))


def _move_rest(session: Session, mover: Mover, terms: Terms) -> None:
    end = time.monotonic() + terms.hold.total_seconds()
    mover.restart()
    while mover.move():
        if time.monotonic() > end:
            raise OperateError(_too_slow(session, terms))


def _in_the_way(session: Session, terms: Terms, error: psycopg.Error) -> str:
    return (
        f"{session} could not be locked within {terms.patience}: {told(error)}. What was moved stays moved, and no "
        "trigger was made. Let the transactions on it end (pg_stat_activity, by xact_start; prepared ones are in "
        "pg_prepared_xacts), and run the same command again"
    )


def _too_slow(session: Session, terms: Terms) -> str:
    return (
        f"what is left of {session} could not be moved within the {terms.hold} for which services may wait (--hold); "
        "what was moved before stays moved, and no trigger was made. Where no index leads to the rows that wait, the "
        "whole table is read: create index concurrently on it, on the ids, where what --pending says; and try again"
    )


def _milliseconds(duration: timedelta) -> str:
    return f"{max(1, round(duration / timedelta(milliseconds=1)))}ms"
