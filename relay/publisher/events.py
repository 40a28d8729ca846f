"""What happens on the road, as values that logs, metrics, health and tests listen to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relay.outbox.rows import Claimed, Reason, Taken


@dataclass(frozen=True, slots=True)
class BatchSettled:
    """A batch was committed. Rows that are neither published, retried nor failed were released as they were."""

    claimed: int
    published: int
    retried: int
    failed: int
    size_bytes: int
    seconds: float
    taken: Mapping[str, Sequence[Taken]] = field(default_factory=dict)  # what was published, by topic


@dataclass(frozen=True, slots=True)
class SlotsLacking:
    """There is no further session to be had: batches go on in those slots that have one."""

    error: Exception
    again_in_seconds: float


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The broker did not take a request. What becomes of its rows is told by the events that follow."""

    topic: str
    rows: Sequence[Claimed]
    error: Exception  # a BrokerError, or what an adapter raised that is none


@dataclass(frozen=True, slots=True)
class RowRetried:
    """A failure that is the row's own: it has one attempt less, and comes again after a delay."""

    row: Claimed
    topic: str
    batch_size: int
    error: Exception
    attempt_count: int  # this one included
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class KeyRests:
    """The broker takes others of the topic and says that a key is too fast: it is left alone, and no row pays."""

    row: Claimed  # the first that waits in the key
    topic: str
    batch_size: int
    error: Exception
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class RowFailed:
    """The row is out of the claim for good, and kept for inspection."""

    row: Claimed
    topic: str
    batch_size: int
    error: Exception
    attempt_count: int  # this one included
    reason: Reason
    blocks_key: bool  # its ordering key waits until somebody decides about the row


@dataclass(frozen=True, slots=True)
class TopicOpened:
    """The topic takes nothing: its rows are left out of the claim, and nobody pays. A probe asks again."""

    topic: str
    error: Exception
    probe_in_seconds: float


@dataclass(frozen=True, slots=True)
class TopicProbed:
    """A probe was in vain; the next one comes later."""

    topic: str
    error: Exception
    probes: int
    probe_in_seconds: float


@dataclass(frozen=True, slots=True)
class TopicClosed:
    """The topic is open no longer."""

    topic: str
    probes: int
    seconds: float  # since it opened
    taken: bool = True  # it took a message; otherwise it only has no rows left to be tried with
