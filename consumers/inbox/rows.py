"""What goes into the inbox's tables and comes out of them, as values."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from consumers.delivery import Delivery
from idempotency import LeaseLostError


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An event that is to be stored for a consumer."""

    event_id: UUID
    event_type: str
    version: int
    sequence: int
    ordering_key: str
    shard: int
    message_id: str
    body: bytes
    """The envelope, as JSON."""
    attributes: dict[str, str]


@dataclass(slots=True, eq=False, kw_only=True)
class Owned:
    """A row that this process has claimed."""

    id: int
    event_type: str
    token: str
    deadline: float
    """Until when it is ours, by this process's own clock, unless it is renewed."""
    attempt: int
    alone: bool
    deferrals: int = 0
    over: bool = False
    """Whether there is nothing more to say about it: it is settled, or its lease is left to end."""
    fanned_out: bool = False
    """Whether recipients were stored with it: they may be due as soon as it is let go of."""
    left: bool = False
    """Whether its handler's own transaction ends its lease."""
    revision: int | None = None
    """That of the handler that it is for; None where there is none."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that was claimed, and the delivery in it."""

    owned: Owned
    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What an owner says of its row: which state it comes to, and why. Every field is a column of `settle.sql`."""

    owned: Owned
    state: str
    what: str
    """The entry of its history."""
    outcome: str = ""
    rest: float = 0.0
    refunded: bool = False
    deferred: bool = False
    cleared: bool = True
    """Whether its attempt came to an end by itself, so that it is no suspect any more."""
    result: str = ""
    code: str = ""
    error: str = ""
    ticket: str = ""
    version: int | None = None
    detail: Any = None


def lost(owned: Owned) -> LeaseLostError:
    """Say that a transaction of a handler's is about a delivery that is no longer its own."""
    return LeaseLostError(
        f"delivery {owned.id} is no longer this handler's: its lease was over, and somebody else has it or has "
        "completed it; the transaction must be rolled back"
    )


# What became of a word.
SETTLED: Final = "settled"
SETTLED_BEFORE: Final = "settled before"
HELD: Final = "held"
"""Somebody's transaction has the row: that of its own handler, most likely."""
LOST: Final = "lost"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in the inbox for a consumer."""

    types: dict[str, float]
    """Of what has no key: for each type, in how many seconds its first one is due."""
    keyed: bool
    """Whether anything with a key waits, or is worked on."""
    suspects: dict[str, float]
    """Of what its last owner died with: for each type, in how many seconds its first one is due."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first unfinished row of an ordering key."""

    key: str
    id: int
    event_type: str
    ready: bool
    due_in: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """A row that was taken from an owner whose lease is over."""

    id: int
    event_id: str
    event_type: str
    attempt: int
    """Those that it has been charged with; beside others it pays nothing for a crash."""
    owner: str
    alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A row that somebody waits for."""

    id: int
    state: str
    outcome: str
    result: Any
    error_code: str
    error: str
    due_in: float
    """Seconds until its next attempt, where that is to come."""
