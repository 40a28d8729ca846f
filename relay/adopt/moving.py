"""Rows of the old table become rows of the outbox, in the order of their ids, each marked as it is stored."""

from collections.abc import Sequence
from dataclasses import dataclass

from relay.adopt import crash_points
from relay.adopt.crash_points import Point
from relay.adopt.judging import Judged, judged, key_shown, newest, next_page
from relay.adopt.queries import Key
from relay.adopt.session import Session
from relay.errors import OperateError

# So much is stored with one statement at most; a row above it goes alone.
_BYTES = 32_000_000


@dataclass(slots=True)
class Moved:
    """How many rows are marked, and how many events were stored for them."""

    rows: int = 0
    stored: int = 0


class Mover:
    """Moves one batch after another; a batch that fails is as if it had not begun.

    A pass goes up to the row that was the newest when it began. Who stores a row later may do so because of one that
    has an id behind which the pass is by then, and was committed since: both are of the next pass, in their order.
    """

    def __init__(self, session: Session, batch: int) -> None:
        self._session = session
        self._batch = batch
        self._reach = batch
        self._after: Key | None = None
        self._last: Key | None = None
        self.moved = Moved()

    def restart(self) -> None:
        """Begin a pass at the first row: transactions that began earlier may have committed behind us."""
        self._after = None
        self._last = next(iter(newest(self._session, 1, sent=False)), None)

    def move(self) -> bool:
        """Move the next rows, in a transaction unless one is open; False where the pass has no more than these."""
        if self._last is None:
            return False
        asked = self._reach
        page = next_page(self._session, self._after, asked, last=self._last)
        if not page:
            return False
        chosen = self._fitting(judged(self._session, page))
        if chosen:
            self._take(chosen)
        self._after = chosen[-1] if chosen else page[-1]
        return len(page) == asked or self._after != page[-1]

    def _fitting(self, rows: Sequence[Judged]) -> list[Key]:
        """As many as fit in one statement; where they are large, fewer are looked at the next time."""
        chosen: list[Key] = []
        size = 0
        for row in rows:
            if not row.pending:  # somebody sent it meanwhile
                continue
            if row.fault is not None or row.different:
                raise OperateError(_refusal(self._session, row))
            size += row.size
            if chosen and size > _BYTES:
                self._reach = 2 * len(chosen)
                return chosen
            chosen.append(row.key)
        self._reach = min(self._batch, 2 * self._reach)
        return chosen

    def _take(self, chosen: Sequence[Key]) -> None:
        connection, queries = self._session.connection, self._session.queries
        with self._session.transaction():
            crash_points.reached(Point.LOCK_BEFORE)
            locked = [tuple(row) for row in connection.execute(queries.lock(), queries.values(chosen)).fetchall()]
            crash_points.reached(Point.EMIT_BEFORE)
            if not locked:
                return
            values = queries.values(locked)
            (stored,) = connection.execute(queries.emit(), values).fetchone() or (0,)
            crash_points.reached(Point.MARK_BEFORE)
            marked = connection.execute(queries.mark(), values).fetchall()
            if len(marked) != len(locked) or any(still for (still,) in marked):
                raise OperateError(
                    f"{len(locked):,} row(s) of {self._session} were to be marked, {len(marked):,} were, "
                    f"{sum(still for (still,) in marked):,} still wait; this batch was undone. Does --mark end what "
                    "--pending asks for, and does no trigger of the table undo it?"
                )
            crash_points.reached(Point.COMMIT_BEFORE)
        crash_points.reached(Point.COMMIT_AFTER)
        self.moved.rows += len(locked)
        self.moved.stored += int(stored)


def _refusal(session: Session, row: Judged) -> str:
    what = row.fault or f"is in the outbox with another {', '.join(row.different)}"
    return (
        f"row {key_shown(row.key)} of {session} cannot be taken: {what}. Change the mapping or the row, or mark it as "
        "sent, and run the same command again; what was moved stays moved"
    )
