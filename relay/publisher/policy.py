"""What the settings say about publishing, as one value."""

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.failed_head import FailedHead
from relay.kernel.backoff import Delay
from relay.kernel.failure import code, sentence
from relay.kernel.line_redaction import Words
from relay.kernel.runner import Pace
from relay.publisher.events import KeyRests, RowFailed, RowRetried
from relay.publisher.failures import Attempts
from relay.routes import Routes

# In seconds, whatever the pace of polls.
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 1.0
# So many requests that hang fit into the publish budget, with some that do not: one leaves time to find out why.
REQUESTS_IN_BUDGET = 3.2


# The words in which the outbox keeps what a row fails of.
Said = Callable[[RowFailed | RowRetried | KeyRests], Words]


def plainly(event: RowFailed | RowRetried | KeyRests) -> Words:
    """As any error is told."""
    return Words(code(event.error), sentence(event.error))


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """Where rows go, what the publisher may take at once, how often it tries a row, and how long it waits.

    Up to `slots` transactions are open side by side, each with a batch. When a row of an ordering key has failed for
    good, `failed_head` says whether its key goes on. An idle outbox is polled, a topic that fails is left alone; so is
    everything after an error of the publisher's own.
    """

    routes: Routes
    batch_size: int
    slots: int
    publish_seconds: float
    attempts: Attempts
    poll: Delay
    outage: Delay
    failed_head: FailedHead = field(default_factory=FailedHead)
    said: Said = plainly

    @property
    def pace(self) -> Pace:
        """A full batch is followed at once."""
        return Pace(busy=0, idle=self.poll, error=self.outage)

    @property
    def patience(self) -> float:
        """While batches are under way, no event waits longer than this until it is looked for, if a slot is free."""
        return min(max(self.poll.first, _LEAST_PATIENCE), _MOST_PATIENCE)

    @property
    def request_seconds(self) -> float:
        """How long one request may take."""
        return self.publish_seconds / REQUESTS_IN_BUDGET
