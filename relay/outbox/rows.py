"""What the relay claims of the table, and what it writes back, as values."""

from itertools import accumulate
from typing import Literal, NamedTuple

# What stands for the broker's id in a row that went into an inbox of the same database.
MOVED = "inbox"

# Why a row is out of the claim for good. An operator may discard it later.
Reason = Literal["max_attempts", "non_retryable"]


class Claimed(NamedTuple):
    """A row that this transaction has locked, as the message needs it."""

    id: int
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    topic: str | None
    body: bytes  # None at first where the row is not small, and for good for who moves rows inside of the database
    attributes: bytes | None  # as JSON: a row written by hand may hold what no parser takes
    size_bytes: int
    created_at: str
    attempt_count: int
    ordering_key: str | None


# A row whose message the broker has taken, and the broker's id for it.
Taken = tuple[Claimed, str]


def fitting(rows: list[Claimed], size_bytes: int) -> list[Claimed]:
    """The first of these rows, up to the one with which they reach so many bytes."""
    if sum([row.size_bytes for row in rows]) <= size_bytes:
        return rows
    before = accumulate((row.size_bytes for row in rows), initial=0)
    return [row for row, bytes_before in zip(rows, before, strict=False) if bytes_before < size_bytes]


class Charged(NamedTuple):
    """The row pays with attempts. With a reason it failed for good; without one it comes again after the delay."""

    id: int
    attempts: int
    code: str
    error: str
    reason: Reason | None
    blocks_key: bool  # what stands behind it in its key waits until somebody decides about the row
    delay_seconds: float


class Claim(NamedTuple):
    """What one claim found."""

    rows: list[Claimed]  # those of one key stand in their order, and begin with the first that waits
    full: bool  # it may have left rows behind that could be claimed
    unseen: bool  # there may be rows or keys that it has not come by yet


# What may be claimed beside fresh rows, by the statement that finds it.
Beside = Literal["walk_keys", "claim_delayed"]


class Glance(NamedTuple):
    """What was seen just before fresh rows were claimed."""

    seen_to: int | None  # the greatest id; None where nobody asked
    file: int  # that holds the table
    keys: bool  # something waits with a key; false where nobody asked, as for the next
    due: bool  # something that was scheduled or put off is due
    seconds_before: float  # what was asked for before fresh rows, this glance included, took so long

    @property
    def beside(self) -> list[Beside]:
        """What has to be looked for, and was not yet."""
        seen: dict[Beside, bool] = {"walk_keys": self.keys, "claim_delayed": self.due}
        return [name for name, there in seen.items() if there]


class Place(NamedTuple):
    """How far the probes of a topic have come: fresh rows by id, then those put off by their time; and in the keys."""

    available_at: str
    id: int
    ordering_key: str = ""


START = Place("-infinity", 0)


class Candidates(NamedTuple):
    """What one look for probes found: rows of the topic that are due, and those of them that could be locked."""

    rows: list[Claimed]
    seen: bool  # whether the topic has any
    last: Place  # where the next look goes on


class Heads(NamedTuple):
    """What one look for the first rows of keys found."""

    rows: list[Claimed]
    seen: int  # keys of the topic that could go on; of those that are not among the rows, another holds the first
    after: str  # the key after which the next look goes on; empty at the end
