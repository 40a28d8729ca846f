"""Checks of rights: those of the role that looks, and with whose the function of the outbox acts."""

from collections.abc import Sequence
from shlex import quote
from typing import Any

from relay.operate.doctor.findings import Finding, fail, ok, warn


def judge_privileges(rows: Sequence[dict[str, Any]]) -> Sequence[Finding]:
    """A relay needs to read events and the version, and to mark what became of an event."""
    if not rows:
        return (fail("privileges", "there is no outbox to have rights on", "create it: python -m relay migrate"),)
    (row,) = rows
    role, lacking = row["role"], []
    if not row["usage"]:
        lacking.append("usage on the schema")
    lacking += [
        f"select on {table}"
        for table, granted in (("outbox_events", row["reads_events"]), ("outbox_migrations", row["reads_version"]))
        if not granted
    ]
    if row["not_updatable"]:
        lacking.append(f"update ({', '.join(row['not_updatable'])}) on outbox_events")
    if lacking:
        remedy = f"have the owner of the outbox run: python -m relay grants --relay {quote(role)} --apply"
        return (fail("privileges", f"role {role} lacks {'; '.join(lacking)}", remedy),)
    if row["superuser"]:
        return (
            warn(
                "privileges",
                f"role {role} is a superuser: it may do everything, and takes connections kept for an emergency",
                "give the relay a role of its own: see docs/deploy.md, Roles",
            ),
        )
    if row["row_security"]:
        return (
            warn(
                "privileges",
                f"row level security applies to role {role} on outbox_events: rows may be hidden from the relay",
                "alter role ... bypassrls, or see that its policies show every row",
            ),
        )
    return (ok("privileges", f"role {role} has what a relay needs"),)


def judge_emit(rows: Sequence[dict[str, Any]], schema: str) -> Sequence[Finding]:
    """Nobody can have the rights of the outbox's owner used for objects of their own."""
    if not rows:
        return (fail("outbox_emit", "there is no such function", "create it: python -m relay migrate"),)
    (row,) = rows
    findings = []
    if row["anybody_creates"]:
        findings.append(
            warn(
                "outbox_emit",
                f"everybody may create objects in schema {schema}, where it looks names up with its owner's rights",
                f"revoke create on schema {schema} from public",
            )
        )
    if not row["fixed"]:
        findings.append(
            warn(
                "outbox_emit",
                "its search_path is not fixed, or pg_temp is not the last of it: it runs what its caller puts there",
                f"alter function {schema}.outbox_emit(jsonb) set search_path to {schema}, pg_temp",
            )
        )
    if not row["definer"]:
        findings.append(
            warn(
                "outbox_emit",
                "it acts with its caller's rights: roles that relay grants has made emitters cannot store events",
                f"alter function {schema}.outbox_emit(jsonb) security definer",
            )
        )
    whose = "its owner's" if row["definer"] else "its caller's"
    return findings or (ok("outbox_emit", f"acts with {whose} rights on the outbox's own objects"),)
