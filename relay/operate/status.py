"""`relay status`: how the queue is, as a value and as lines for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from relay.outbox.queue import (
    COUNT_LIMIT,
    Cause,
    Counters,
    LastAction,
    Queue,
    causes,
    counters,
    last_action,
    look,
)

# Of so many failed, and as many retrying rows, the causes are counted; so many causes are shown.
LOOKED_AT, SHOWN = 10_000, 10


@dataclass(frozen=True, slots=True)
class Status:
    """One look at an outbox."""

    schema: str
    schema_version: int
    queue: Queue
    causes: Sequence[Cause]
    counters: Counters
    last_action: LastAction | None

    def as_json(self) -> dict[str, Any]:
        """For scripts. A count that equals count_limit means so many or more."""
        queue = self.queue
        return {
            "schema": self.schema,
            "schema_version": self.schema_version,
            "count_limit": COUNT_LIMIT,
            "pending": {
                "total": queue.pending,
                "fresh": queue.fresh,
                "delayed_due": queue.delayed_due,
                "scheduled": queue.scheduled,
                "ordered": queue.ordered,
            },
            "due": queue.due,
            "ordered_due": queue.ordered_due,
            "oldest_due_seconds": round(max(0.0, queue.oldest_due_seconds), 3),
            "retrying": queue.retrying,
            "failed": {
                "total": queue.failed,
                "max_attempts": queue.max_attempts,
                "non_retryable": queue.non_retryable,
                "blocking_a_key": queue.blocking,
                "last_hour": queue.failed_last_hour,
            },
            "causes": [cause._asdict() for cause in self.causes],
            "rows_inserted": self.counters.inserted,
            "rows_updated": self.counters.updated,
            "last_action": self.last_action and self.last_action._asdict(),
        }


async def status(
    connection: psycopg.AsyncConnection[Any], schema: str, version: int, routing: Mapping[str, Any]
) -> Status:
    """Look at the outbox. What operators did is left out for a role that may not read it."""
    counted = await counters(connection, schema)
    return Status(
        schema=schema,
        schema_version=version,
        queue=await look(connection, schema),
        causes=await causes(connection, schema, routing, LOOKED_AT, SHOWN),
        counters=counted,
        last_action=await last_action(connection, schema) if counted.may_read_actions else None,
    )


def lines(now: Status, before: Status | None = None) -> list[str]:
    """The look for a terminal; with the one before it also the rates between the two."""
    queue = now.queue
    oldest = f", the oldest for {age(queue.oldest_due_seconds)}" if queue.due else ""
    said = [
        f"schema    {now.schema}, version {now.schema_version}",
        f"due       {many(queue.due)}{oldest}",
        f"pending   {many(queue.pending)}: {_pending(queue)}",
        *_ordered(queue),
        f"retrying  {many(queue.retrying)} pending after a failed attempt",
        f"failed    {many(queue.failed)}: {_failed(queue)}",
    ]
    said += [
        f"          {many(cause.rows)} {cause.state} with {cause.code or 'no code'} on {cause.topic}"
        for cause in now.causes
    ]
    said += [_rates(now.counters, before.counters)] if before else []
    if (last := now.last_action) is not None:
        said.append(f"operator  {last.action} of {many(last.rows)} row(s) by {last.acted_by} at {last.acted_at}")
    elif not now.counters.may_read_actions:
        said.append("operator  not shown: this role may not read outbox_actions")
    if queue.failed:
        said.append("next      python -m relay failed list")
    return said


def many(count: int) -> str:
    """A count as people read it; one that ended at the limit says so."""
    return f"at least {count:,}" if count >= COUNT_LIMIT else f"{count:,}"


def age(seconds: float) -> str:
    """An age in whole seconds, or in parts of the first."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 1 else str(timedelta(seconds=round(seconds)))


def _pending(queue: Queue) -> str:
    return (
        f"{many(queue.fresh)} fresh, {many(queue.delayed_due)} delayed and due, "
        f"{many(queue.scheduled)} for later, {many(queue.ordered)} ordered"
    )


def _ordered(queue: Queue) -> list[str]:
    if not queue.ordered_due:
        return []
    return [f"ordered   {many(queue.ordered_due)} have an ordering_key, which this release does not relay: they wait"]


def _failed(queue: Queue) -> str:
    return (
        f"{many(queue.max_attempts)} max_attempts, {many(queue.non_retryable)} non_retryable; "
        f"{many(queue.failed_last_hour)} in the last hour; {many(queue.blocking)} hold up their key"
    )


def _rates(now: Counters, before: Counters) -> str:
    seconds = max(now.at - before.at, 0.001)
    inserted, updated = max(0, now.inserted - before.inserted), max(0, now.updated - before.updated)
    return (
        f"rates     {inserted / seconds:,.1f} emitted and {updated / seconds:,.1f} settled rows a second, "
        f"by the counters of Postgres"
    )
