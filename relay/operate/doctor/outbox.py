"""Checks of the outbox itself: its objects, the relay's rights on them, and what waits in it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from relay.operate.doctor.findings import Check, Finding, fail, ok, warn
from relay.operate.doctor.look import Look, span
from relay.operate.doctor.rights import judge_emit, judge_privileges
from relay.operate.remedies import one_version
from relay.outbox import schema
from relay.outbox.grants import MARKED
from relay.outbox.queue import Keys, Queue
from relay.outbox.rows import MOVED

MANY_DEAD = 100_000
LONG_WITHOUT_VACUUM = 3_600.0
OLD_SECONDS = 300.0
MOST_COUNTED = 1_000

_CHANGE = re.compile(
    r"^(create|drop) (?:or replace )?(?:unique )?(?:concurrently )?(table|index|function|trigger) "
    r"(?:if (?:not )?exists )?(\w+)",
    re.MULTILINE,
)


def outbox_checks(look: Look) -> list[Check]:
    """The checks, in the order in which they are best read."""
    known = schema.newest()

    async def version() -> Sequence[Finding]:
        nonlocal known
        known = await schema.require(look.connection, look.schema)
        return (judge_schema(look.schema, known, schema.newest()),)

    async def objects() -> Sequence[Finding]:
        # A later release may have dropped what this one knows.
        wanted = list(objects_of_schema(known)) if known <= schema.newest() else []
        values = {"kinds": [kind for kind, _ in wanted], "names": [name for _, name in wanted]}
        return judge_objects(await look.rows("objects", schema=_quoted(look), **values))

    async def privileges() -> Sequence[Finding]:
        return judge_privileges(await look.rows("privileges", schema=_quoted(look), columns=list(MARKED)))

    async def emit() -> Sequence[Finding]:
        found = await look.rows("emit", schema=_quoted(look))
        return judge_emit(found, _quoted(look))

    async def sequence() -> Sequence[Finding]:
        return judge_sequence(await look.rows("sequence"))

    async def vacuum() -> Sequence[Finding]:
        return judge_vacuum(await look.row("vacuum"))

    async def queue() -> Sequence[Finding]:
        return judge_queue(await look.queue(MOST_COUNTED))

    async def takers() -> Sequence[Finding]:
        return judge_takers(await look.row("went", moved=MOVED))

    return [
        Check("schema", version),
        Check("objects", objects),
        Check("privileges", privileges),
        Check("outbox_emit", emit),
        Check("identity", sequence),
        Check("vacuum", vacuum),
        Check("queue", queue),
        Check("takers", takers),
    ]


def objects_of_schema(version: int) -> Iterator[tuple[str, str]]:
    """Kind and name of all that is there once every migration up to a version has run."""
    there = {("table", "outbox_migrations"): None}
    for migration in schema.migrations():
        if migration.version > version:
            break
        for action, kind, name in _CHANGE.findall(migration.up):
            if action == "create":
                there[kind, name] = None
            else:
                there.pop((kind, name), None)
    return iter(there)


def judge_schema(name: str, version: int, release: int) -> Finding:
    """Old and new code run side by side for as long as a deploy takes, and not for good."""
    found = f"{name!r} is at version {version}"
    if version == release:
        return ok("schema", found)
    which = "before" if version < release else "after"
    return warn("schema", f"{found}, one {which} the {release} of this release", one_version(version, release))


def judge_objects(rows: Sequence[dict[str, Any]]) -> Sequence[Finding]:
    """Everything is there, and no index is a leftover that was never finished."""
    missing = [f"{row['kind']} {row['name']}" for row in rows if not row["present"]]
    broken = [f"{row['kind']} {row['name']}" for row in rows if row["present"] and not row["usable"]]
    findings = []
    if missing:
        findings.append(
            fail("objects", f"missing: {', '.join(missing)}", "bring the schema up with: python -m relay migrate")
        )
    if broken:
        findings.append(
            fail(
                "objects",
                f"there and not in use: {', '.join(broken)}",
                "reindex the index, or drop one that no migration made; enable the trigger",
            )
        )
    there = f"all {len(rows)} tables, indexes, functions and triggers are there"
    return findings or (ok("objects", there if rows else "those of a later release; each index is in use"),)


def judge_sequence(rows: Sequence[dict[str, Any]]) -> Sequence[Finding]:
    """Ids ascend, one by one, and none is drawn that is taken."""
    if not rows:
        return (fail("identity", "outbox_events.id has no sequence", "restore it from: python -m relay migrate --sql"),)
    row = rows[0]
    if row["cache"] != 1 or row["cycles"] or row["step"] < 1:
        return (
            fail(
                "identity",
                f"{row['name']} caches {row['cache']}, steps by {row['step']}{' and cycles' if row['cycles'] else ''}: "
                "ids do not follow the order of insertion, and events can be passed over",
                "alter table outbox_events alter column id set cache 1 set increment 1 set no cycle",
            ),
        )
    if not row["visible"]:
        return (ok("identity", "cache 1; where it stands is not for this role to see"),)
    if row["greatest"] is not None and (row["last_value"] or 0) < row["greatest"]:
        return (
            fail(
                "identity",
                f"{row['name']} stands at {row['last_value'] or 0}, behind the greatest id {row['greatest']}: "
                "events cannot be stored, or are stored below what is published",
                f"move it: select setval('{row['name']}', {row['greatest']})",
            ),
        )
    return (ok("identity", "cache 1, and not behind the greatest id"),)


def judge_vacuum(row: dict[str, Any]) -> Sequence[Finding]:
    """Dead row versions are taken away."""
    if not row["on_server"]:
        return (fail("vacuum", "autovacuum is off on this server", "set autovacuum and track_counts to on"),)
    if not row["on_table"]:
        return (
            fail(
                "vacuum",
                "autovacuum is off for outbox_events",
                "alter table outbox_events reset (autovacuum_enabled)",
            ),
        )
    since = row["seconds_since"]
    last = "never vacuumed" if since is None else f"last vacuumed {span(since)} ago"
    found = f"{row['dead']:,} dead and {row['live']:,} live rows, {last}"
    late = since is None or since > LONG_WITHOUT_VACUUM
    if row["dead"] > max(MANY_DEAD, row["live"]) and late:
        return (
            warn("vacuum", found, "see what holds it up under 'old snapshots', then: vacuum (verbose) outbox_events"),
        )
    return (ok("vacuum", found),)


def judge_queue(queue: Queue) -> Sequence[Finding]:
    """What waits is young, nothing failed, and no key waits for an operator."""
    findings = []
    if queue.oldest_due_seconds > OLD_SECONDS:
        findings.append(
            warn(
                "queue",
                f"the oldest event has been due for {span(queue.oldest_due_seconds)}",
                "see that a relay runs, and what its log says of the broker: python -m relay run",
            )
        )
    if queue.failed:
        findings.append(
            warn(
                "queue",
                f"{_many(queue.failed)} events failed and wait for a decision",
                "look at them: python -m relay failed list",
            )
        )
    if queue.keys.blocked:
        findings.append(
            warn(
                "queue",
                _blocked(queue.keys),
                "see which with: python -m relay status; each goes on in order after: python -m relay failed retry ID, "
                "or without the event after: python -m relay failed discard ID --reason TEXT",
            )
        )
    return findings or (ok("queue", "nothing is overdue, and nothing failed"),)


def judge_takers(row: dict[str, Any]) -> Sequence[Finding]:
    """Each event goes one way: to the broker, or into the inbox of this database."""
    if not row["into_inbox"]:
        return (ok("takers", "no consumer takes events out of this outbox itself"),)
    both = "; some went to a broker meanwhile" if row["to_broker"] else ""
    return (
        warn(
            "takers",
            "consumers with source='outbox' have taken events out of this outbox within the last hour: what they take, "
            f"no relay publishes, and what a relay publishes, they do not get{both}",
            "run no relay on this outbox; or give these consumers a subscription, and end them: "
            "python -m consumers subscribers list",
        ),
    )


def _blocked(keys: Keys) -> str:
    since = f"the first for {span(keys.oldest_blocked_seconds)}"
    if keys.behind or keys.is_least:
        blocked, behind = _many(keys.blocked, least=keys.is_least), _many(keys.behind, least=keys.is_least)
        return f"{blocked} ordering keys wait behind a failed event, {since}, with {behind} events"
    which = "1 ordering key is" if keys.blocked == 1 else f"{_many(keys.blocked)} ordering keys are"
    return f"{which} blocked by a failed event, {since}, and no event waits behind it yet"


def _many(count: int, *, least: bool = False) -> str:
    return f"{count:,} or more" if least or count >= MOST_COUNTED else f"{count:,}"


def _quoted(look: Look) -> str:
    return '"' + look.schema.replace('"', '""') + '"'
