"""The named places on the road at which a process may die, in the order in which a batch comes by.

`reached` does nothing. The chaos tests put in its place what kills the process, and the audit decides what became of
the events.
"""

from enum import Enum


class Point(Enum):
    """Where a batch is."""

    CLAIM_BEFORE = "claim.before"
    CLAIM_AFTER = "claim.after"
    PUBLISH_BEFORE = "publish.before"  # of each request
    PUBLISH_AFTER = "publish.after"  # the request is under way
    ACK_BEFORE = "ack.before"  # the broker's answer is here, and nobody has read it
    ACK_AFTER = "ack.after"
    SETTLE_BEFORE = "settle.before"
    SETTLE_AFTER = "settle.after"
    COMMIT_BEFORE = "commit.before"
    COMMIT_AFTER = "commit.after"


def reached(point: Point) -> None:
    """A batch has come to this place."""
