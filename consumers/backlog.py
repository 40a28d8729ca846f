"""How an inbox is, as values: what waits in it, and what one process made of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Queue:
    """What a consumer's inbox holds, for all of its processes. What is in `at_least` was not counted to its end."""

    due: int
    """What may be handled now, or waits behind another one of its key."""
    oldest_due_seconds: float
    """For how long the first of them has been due; 0 without any."""
    processing: int
    sent: int
    failed: int
    at_least: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spent:
    """The connections for `ctx.transaction()` of one process: how many are out, and how many handlers wait for one."""

    in_use: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class InboxStats:
    """One process and its inbox; the counts are since the last look."""

    available: bool
    """Whether it answers: where not, nothing is received, nothing is begun, or nobody could look at the queue."""
    stored: int
    not_stored: Mapping[str, int]
    """Arrivals that were settled at once, by their outcome: duplicates, and what no handler here is for."""
    claims: int
    """Statements that asked for deliveries."""
    claimed: Mapping[str, int]
    """Deliveries that they brought, by the way: ready, key or alone."""
    conflicts: int
    """Deliveries that were found free, and that another process had before us."""
    recovered: int
    """Leases that were found expired: of a process that was silent for longer."""
    leases: int
    """Those that are held now."""
    queue: Queue | None
    """None where nobody looked, or nobody answered."""
    connections: Spent = Spent()


class Backlog(Protocol):
    """What a runtime asks of the inbox behind its source."""

    @property
    def available(self) -> bool:
        """Whether it answered the last time that it was asked to store, or for what is due."""
        ...

    async def look(self) -> None:
        """See what waits, for the next statistics. Raises nothing where the inbox is away: they say so."""
        ...

    def stats(self) -> InboxStats:
        """How it is, and what was done since the last time."""
        ...
