"""`relay status`: how the queue is, as a value and as lines for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg

from relay.operate.failed import with_times
from relay.operate.remedies import one_version
from relay.operate.runs import Failing, HistoryReader, in_json, job_ended
from relay.outbox.queue import (
    COUNT_LIMIT,
    BlockedKey,
    Cause,
    Counters,
    Keys,
    LastAction,
    Queue,
    blocked_keys,
    causes,
    counters,
    last_action,
    look,
)

# Of so many failed, and as many retrying rows, the causes are counted; so many causes are shown.
LOOKED_AT, SHOWN = 10_000, 10
# So many characters of an ordering key are shown on a terminal.
_KEY_SHOWN = 64
# The version of the schema from which on jobs have a history.
_WITH_JOBS = 6


class Versions(NamedTuple):
    """The schema's version, and the one that this code was written for."""

    schema: int
    release: int


@dataclass(frozen=True, slots=True)
class Status:
    """One look at an outbox."""

    schema: str
    versions: Versions
    queue: Queue
    blocked: Sequence[BlockedKey]
    causes: Sequence[Cause]
    counters: Counters
    last_action: LastAction | None
    failing_jobs: Sequence[Failing] | None
    """None where this role may not read it."""

    def as_json(self) -> dict[str, Any]:
        """For scripts. A count that reaches count_limit means so many or more."""
        queue = self.queue
        return {
            "schema": self.schema,
            "schema_version": self.versions.schema,
            "release_version": self.versions.release,
            "count_limit": COUNT_LIMIT,
            "pending": {
                "total": queue.pending,
                "fresh": queue.fresh,
                "delayed_due": queue.delayed_due,
                "scheduled": queue.scheduled,
                "ordered": queue.ordered,
            },
            "due": queue.due,
            "due_is_least": queue.keys.is_least or queue.due >= COUNT_LIMIT,
            "ordered_due": queue.keys.due,
            "ordered_later": queue.keys.later,
            "oldest_due_seconds": round(max(0.0, queue.oldest_due_seconds), 3),
            "retrying": queue.retrying,
            "failed": {
                "total": queue.failed,
                "max_attempts": queue.max_attempts,
                "non_retryable": queue.non_retryable,
                "blocking_a_key": queue.blocking,
                "last_hour": queue.failed_last_hour,
            },
            "blocked": {
                "keys": queue.keys.blocked,
                "keys_is_least": queue.keys.is_least,
                "rows_behind": queue.keys.behind,
                "rows_behind_is_least": queue.keys.is_least or queue.keys.behind >= COUNT_LIMIT,
                "oldest_seconds": round(max(0.0, queue.keys.oldest_blocked_seconds), 3),
                "shown": [with_times(key._asdict()) for key in self.blocked],
            },
            "causes": [cause._asdict() for cause in self.causes],
            "rows_inserted": self.counters.inserted,
            "rows_updated": self.counters.updated,
            "last_action": self.last_action and with_times(self.last_action._asdict()),
            "failing_jobs": self.failing_jobs and [in_json(job._asdict()) for job in self.failing_jobs],
        }


async def status(
    connection: psycopg.AsyncConnection[Any], schema: str, versions: Versions, routing: Mapping[str, Any]
) -> Status:
    """Look at the outbox. What operators did is left out for a role that may not read it."""
    counted = await counters(connection, schema)
    return Status(
        schema=schema,
        versions=versions,
        queue=await look(connection, schema),
        blocked=await blocked_keys(connection, schema, SHOWN),
        causes=await causes(connection, schema, routing, LOOKED_AT, SHOWN),
        counters=counted,
        last_action=await last_action(connection, schema) if counted.may_read_actions else None,
        failing_jobs=await HistoryReader(connection, schema).failing() if versions.schema >= _WITH_JOBS else (),
    )


def lines(now: Status, before: Status | None = None) -> list[str]:
    """The look for a terminal; with the one before it also the rates between the two."""
    queue = now.queue
    said = [
        f"schema    {now.schema}, version {_version(now.versions)}",
        f"due       {many(queue.due, least=queue.keys.is_least)}{_oldest(queue)}",
        f"pending   {many(queue.pending, least=queue.keys.is_least)}: {_pending(queue)}",
        *_ordered(queue),
        f"retrying  {many(queue.retrying)} pending after a failed attempt",
        f"failed    {many(queue.failed)}: {_failed(queue)}",
    ]
    said += [
        f"          {many(cause.rows)} {cause.state} with {cause.code or 'no code'} on {cause.topic}"
        for cause in now.causes
    ]
    said += _blocked(queue, now.blocked)
    said += [_rates(now.counters, before.counters)] if before else []
    if (last := now.last_action) is not None:
        acted_at = with_times({"acted_at": last.acted_at})["acted_at"]
        said.append(f"operator  {last.action} of {many(last.rows)} row(s) by {last.acted_by} at {acted_at}")
    elif not now.counters.may_read_actions:
        said.append("operator  not shown: this role may not read outbox_actions")
    said += _jobs(now.failing_jobs)
    if queue.failed:
        said.append("next      python -m relay failed list")
    if queue.keys.blocked:
        said.append("          python -m relay failed show ID | retry ID | discard ID --reason TEXT")
    return said


def many(count: int, *, least: bool = False) -> str:
    """A count as people read it; one that ended at the limit says so, and so does one that is known to be too low."""
    return f"at least {count:,}" if least or count >= COUNT_LIMIT else f"{count:,}"


def age(seconds: float) -> str:
    """An age in whole seconds, or in parts of the first."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 1 else str(timedelta(seconds=round(seconds)))


def _pending(queue: Queue) -> str:
    return (
        f"{many(queue.fresh)} fresh, {many(queue.delayed_due)} delayed and due, "
        f"{many(queue.scheduled)} for later, {many(queue.ordered, least=queue.keys.is_least)} ordered"
    )


def _version(versions: Versions) -> str:
    if versions.schema == versions.release:
        return str(versions.schema)
    said = f"{versions.schema}, and this release is written for {versions.release}, which works on it"
    return f"{said}; {one_version(*versions)}"


def _oldest(queue: Queue) -> str:
    if not queue.due:
        return ""
    least = "at least " if queue.keys.more_keys else ""
    return f", the oldest for {least}{age(queue.oldest_due_seconds)}"


def _ordered(queue: Queue) -> list[str]:
    if not queue.ordered:
        return []
    keys = queue.keys
    ordered, due, later, behind = (
        many(rows, least=keys.is_least) for rows in (queue.ordered, keys.due, keys.later, keys.behind)
    )
    waiting = f"{later} wait for the next attempt of their key, {behind} behind a failed row"
    return [f"ordered   {ordered}: {due} due, {waiting}"]


def _blocked(queue: Queue, shown: Sequence[BlockedKey]) -> list[str]:
    if not shown:
        return []
    said = [f"blocked   {keys_blocked(queue.keys)}; of each the row and what waits:"]
    for key in shown:
        behind = many(key.behind, least=key.behind_is_least)
        failed_at = with_times({"failed_at": key.failed_at})["failed_at"]
        said.append(
            f"          {key_shown(key.ordering_key)}  {key.id}  {key.event_id}  {key.event_type}  "
            f"{key.code or 'no code'} ({key.failure_reason}) since {failed_at}, {behind} behind it"
        )
    if queue.keys.blocked > len(shown):
        said.append(f"          and {many(queue.keys.blocked - len(shown), least=queue.keys.is_least)} more")
    return said


def _jobs(failing: Sequence[Failing] | None) -> list[str]:
    if failing is None:
        return ["jobs      not shown: this role may not read relay_runs"]
    if not failing:
        return []
    named = ", ".join(f"{job.job} ({job_ended(job.status, job.errors, job.error_code)})" for job in failing[:SHOWN])
    more = f" and {len(failing) - SHOWN} more" if len(failing) > SHOWN else ""
    said = f"{len(failing)} did not end well or had errors last time: {named}{more}"
    return [f"jobs      {said}; python -m relay runs --failed"]


def keys_blocked(keys: Keys) -> str:
    """How many keys are held up by a failed row, and with how many rows."""
    if keys.behind or keys.is_least:
        blocked, behind = many(keys.blocked, least=keys.is_least), many(keys.behind, least=keys.is_least)
        return f"{blocked} key(s) wait behind a failed row, with {behind} row(s)"
    if keys.blocked == 1:
        return "1 key is blocked by a failed row, and nothing waits behind it yet"
    return f"{many(keys.blocked)} keys are blocked by failed rows, and nothing waits behind them yet"


def key_shown(key: str) -> str:
    """An ordering key for a terminal: quoted, for it may hold anything, and cut."""
    return repr(key if len(key) <= _KEY_SHOWN else f"{key[:_KEY_SHOWN]}…")


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
