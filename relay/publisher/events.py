"""What happens on the road, as values that logs, metrics and tests listen to."""

from collections.abc import Sequence
from dataclasses import dataclass

from relay.errors import BrokerError, MessageError
from relay.outbox.outbox import Claimed


@dataclass(frozen=True, slots=True)
class BatchSettled:
    """A batch was committed. Rows that are neither published nor failed were released as they were."""

    claimed: int
    published: int
    failed: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The broker did not take a request; its rows stay pending."""

    topic: str
    rows: Sequence[Claimed]
    error: BrokerError


@dataclass(frozen=True, slots=True)
class RowFailed:
    """A row can never become a message; it is kept for inspection."""

    row: Claimed
    topic: str
    batch_size: int
    error: MessageError
