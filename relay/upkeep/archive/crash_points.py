"""The named places on a month's way at which a process may die, in their order.

`reached` does nothing; tests put in its place what kills the process.
"""

from enum import Enum


class Point(Enum):
    """Where a month is."""

    SEAL_BEFORE = "seal.before"  # detached and renamed, and not committed
    SEAL_AFTER = "seal.after"
    GROUP_AFTER = "group.after"  # of each group of rows in a file
    PUT_BEFORE = "put.before"  # a file is whole, and under no name yet
    PUT_AFTER = "put.after"  # it is where it belongs, and nobody knows
    RECORD_AFTER = "record.after"
    COMPLETE_AFTER = "complete.after"  # all files are recorded
    VERIFY_BEFORE = "verify.before"  # all were read back
    VERIFY_AFTER = "verify.after"
    DROP_BEFORE = "drop.before"  # dropped, and not committed
    DROP_AFTER = "drop.after"
    RESTORE_BEFORE = "restore.before"  # all rows are there, and not committed


def reached(point: Point) -> None:
    """A month has come to this place."""
