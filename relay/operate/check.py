"""`relay check`: is the queue within its limits? One sentence for each that it is not."""

from dataclasses import dataclass
from datetime import timedelta

from relay.operate.status import age, keys_blocked, many
from relay.outbox.queue import Queue


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is fine; None is not looked at."""

    failed: int | None
    age: timedelta | None
    blocked_keys: int | None = None
    retrying: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that is exceeded."""

    what: str
    value: float
    limit: float
    sentence: str


def breaches(queue: Queue, limits: Limits) -> list[Breach]:
    """What is not fine. Rows that were discarded count for nothing."""
    found = []
    if limits.failed is not None and queue.failed > limits.failed:
        found.append(
            Breach(
                "failed",
                queue.failed,
                limits.failed,
                f"{many(queue.failed)} row(s) have failed, the limit is {limits.failed:,}; "
                "look at them with: python -m relay failed list",
            )
        )
    if limits.blocked_keys is not None and queue.keys.blocked > limits.blocked_keys:
        found.append(
            Breach(
                "blocked_keys",
                queue.keys.blocked,
                limits.blocked_keys,
                f"{keys_blocked(queue.keys)}, the limit is {limits.blocked_keys:,}; "
                "see which with: python -m relay status",
            )
        )
    if limits.age is not None and queue.due and queue.oldest_due_seconds > limits.age.total_seconds():
        found.append(
            Breach(
                "oldest_due_seconds",
                round(queue.oldest_due_seconds, 3),
                limits.age.total_seconds(),
                f"the oldest of {many(queue.due, least=queue.keys.is_least)} due row(s) "
                f"has waited for {age(queue.oldest_due_seconds)}, "
                f"the limit is {age(limits.age.total_seconds())}; see what holds them up with: python -m relay status",
            )
        )
    if limits.retrying is not None and queue.retrying > limits.retrying:
        found.append(
            Breach(
                "retrying",
                queue.retrying,
                limits.retrying,
                f"{many(queue.retrying)} pending row(s) have failed before, the limit is {limits.retrying:,}; "
                "see what they fail of with: python -m relay status",
            )
        )
    if limits.pending is not None and queue.pending > limits.pending:
        found.append(
            Breach(
                "pending",
                queue.pending,
                limits.pending,
                f"{many(queue.pending, least=queue.keys.is_least)} row(s) are pending, "
                f"the limit is {limits.pending:,}; see whether they become fewer with: python -m relay status --watch",
            )
        )
    return found
