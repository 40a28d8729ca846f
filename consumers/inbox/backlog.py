"""What this process makes of its inbox, counted from what happens, and a look at what waits there."""

from collections import Counter
from collections.abc import Callable

from consumers.backlog import InboxStats, Queue, Spent
from consumers.events import ClaimMade, DeliverySettled, InboxAway, InboxBack, LeaseRecovered, Stored
from consumers.inbox.inbox import Inbox
from consumers.inbox.table import Table
from idempotency import StoreUnavailableError
from relay.kernel.observe import Observe


class Tally:
    """Listens to what the inbox's parts tell, counts it, and passes it on."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._counts: Counter[str] = Counter()
        self._claimed: Counter[str] = Counter()
        self._not_stored: Counter[str] = Counter()
        self._away: set[str] = set()

    @property
    def away(self) -> bool:
        """Whether something that it is asked for again and again is still without an answer."""
        return bool(self._away)

    def __call__(self, event: object) -> None:
        """Count the event."""
        match event:
            case Stored():
                self._counts["stored"] += event.stored
            case DeliverySettled():
                self._not_stored[event.fate.value] += 1
            case ClaimMade():
                self._counts["claims"] += 1
                self._counts["conflicts"] += event.conflicts
                if event.found:
                    self._claimed[event.way] += event.found
            case LeaseRecovered():
                self._counts["recovered"] += 1
            case InboxAway():
                self._away.add(event.operation)
            case InboxBack():
                self._away.discard(event.operation)
        self._observe(event)

    def stats(self, *, available: bool, leases: int, queue: Queue | None, connections: Spent) -> InboxStats:
        """What was counted since the last time, beside what is known otherwise."""
        counts, claimed, not_stored = self._counts, dict(self._claimed), dict(self._not_stored)
        self._counts, self._claimed, self._not_stored = Counter(), Counter(), Counter()
        return InboxStats(
            available=available,
            stored=counts["stored"],
            not_stored=not_stored,
            claims=counts["claims"],
            claimed=claimed,
            conflicts=counts["conflicts"],
            recovered=counts["recovered"],
            leases=leases,
            queue=queue,
            connections=connections,
        )


class InboxBacklog:
    """Answers what a runtime wants to know of its inbox."""

    def __init__(self, table: Table, inbox: Inbox, tally: Tally, spent: Callable[[], Spent]) -> None:
        self._table = table
        self._inbox = inbox
        self._tally = tally
        self._spent = spent
        self._queue: Queue | None = None
        self._seen = True

    @property
    def available(self) -> bool:
        """Whether it answered the last time that it was asked to store, or for what is due."""
        return not self._tally.away

    async def look(self) -> None:
        """See what waits, with one statement."""
        try:
            self._queue = await self._table.queue()
        except StoreUnavailableError:
            # The statistics say so; why, is told by those who work with it.
            self._queue, self._seen = None, False
        else:
            self._seen = True

    def stats(self) -> InboxStats:
        """How it is; what was seen of its queue is told once."""
        queue, self._queue = self._queue, None
        return self._tally.stats(
            available=self.available and self._seen,
            leases=self._inbox.leases,
            queue=queue,
            connections=self._spent(),
        )
