"""The named places at which a take-over may die, in their order.

`reached` does nothing; tests put in its place what kills the process.
"""

from enum import Enum


class Point(Enum):
    """Where a take-over is."""

    LOCK_BEFORE = "lock.before"
    EMIT_BEFORE = "emit.before"
    MARK_BEFORE = "mark.before"
    COMMIT_BEFORE = "commit.before"  # of each batch, or of a part of the last one
    COMMIT_AFTER = "commit.after"
    FENCE_BEFORE = "fence.before"  # the old table is about to be locked
    TRIGGER_BEFORE = "trigger.before"
    TRIGGER_AFTER = "trigger.after"  # made, and not committed
    DONE = "done"


def reached(point: Point) -> None:
    """A take-over has come to this place."""
