"""What became of requests, as values: taken, failed, and who pays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.outbox.rows import Claimed, Taken
from relay.publisher.failures import Suspicion, Verdict, suspicion
from relay.publisher.message import Sendable


class Guilty(NamedTuple):
    """A row that pays, and for what."""

    row: Claimed
    error: Exception
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a topic's share of a batch. Rows that are in none of these are released as they were."""

    topic: str
    accepted: Sequence[Taken] = ()
    guilty: Sequence[Guilty] = ()
    # Rows of requests that failed, and of which it is not known whether they are at fault.
    suspects: frozenset[int] = frozenset()
    outage: Exception | None = None  # why the topic's circuit opens
    controls: Sequence[Claimed] = ()  # rows that were claimed beyond the batch, and sent


@dataclass(slots=True)
class Failed:
    """A request that was not taken."""

    rows: Sequence[Sendable]
    error: Exception
    # Whatever the topic takes of requests with a greater number is its control. It is the number of the request that
    # failed first: of a row that was found by searching, the one in which it failed among others.
    sent: int

    @property
    def suspicion(self) -> Suspicion:
        """What its error makes one think of."""
        return suspicion(self.error)

    @property
    def keyed(self) -> bool:
        """Whether these are rows of an ordering key."""
        return self.rows[0][0].ordering_key is not None

    @property
    def worth_a_control(self) -> bool:
        """Whether another message tells more about it."""
        return self.suspicion.of_a_row or (self.keyed and self.suspicion is Suspicion.THROTTLE)
