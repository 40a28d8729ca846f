"""Checks of the database server, whatever is in it."""

import time
from collections.abc import Callable, Sequence

from relay.operate.doctor.findings import Check, Finding, fail, ok, warn
from relay.operate.doctor.look import Look, span

OLDEST_MAJOR, NEWEST_MAJOR = 14, 18
FEW_CONNECTIONS = 10
CLOCK_SECONDS = 1.0
# A transaction that is open for longer holds up the floors of the claims, and every vacuum.
OLD_SECONDS = 300.0
MANY_XIDS = 10_000_000
# The relay's own connection rests between two passes.
SHORT_IDLE_MS = 60_000
MOST_NAMED = 3


def server_checks(look: Look, budget_ms: int, batch_ms: int, now: Callable[[], float] = time.time) -> list[Check]:
    """The checks, in the order in which they are best read.

    `budget_ms` is how long a batch may wait for the broker, `batch_ms` when its transaction is ended in any case.
    """

    async def version() -> Sequence[Finding]:
        row = await look.row("server")
        return (
            judge_version(row["version_number"], row["version"]),
            judge_encoding(row["encoding"]),
            judge_standby(standby=row["standby"]),
            judge_pooler(look.connection.info.backend_pid, row["backend_pid"]),
        )

    async def clock() -> Sequence[Finding]:
        before = now()
        row = await look.row("clock")
        after = now()
        return (judge_clock(row["now"] - (before + after) / 2, (after - before) / 2),)

    async def connections() -> Sequence[Finding]:
        row = await look.row("connections")
        return (judge_connections(row["most"], row["used"], row["of_role"], row["used_by_role"]),)

    async def timeouts() -> Sequence[Finding]:
        limits = {row["name"]: int(row["ms"]) for row in await look.rows("timeouts")}
        return judge_timeouts(limits, budget_ms, batch_ms)

    async def horizon() -> Sequence[Finding]:
        found = [judge_holder(**row) for row in await look.rows("horizon")]
        unseen = (await look.row("unseen"))["sessions"]
        return judge_horizon([finding for finding in found if finding is not None], unseen)

    return [
        Check("server", version),
        Check("clock", clock),
        Check("connections", connections),
        Check("timeouts", timeouts),
        Check("old snapshots", horizon),
    ]


def judge_version(number: int, name: str) -> Finding:
    """Nothing newer than 14 is used; nothing newer than 18 was tried."""
    major = number // 10_000
    if major < OLDEST_MAJOR:
        return fail("version", f"PostgreSQL {name} is older than {OLDEST_MAJOR}", "move to a supported release")
    if major > NEWEST_MAJOR:
        return warn(
            "version", f"PostgreSQL {name} is newer than any this release was tried on", "see if a newer relay knows it"
        )
    return ok("version", f"PostgreSQL {name}")


def judge_encoding(encoding: str) -> Finding:
    """Events are JSON in UTF-8."""
    if encoding == "UTF8":
        return ok("encoding", encoding)
    return fail("encoding", f"the database stores {encoding}", "create one with: encoding 'UTF8', and move there")


def judge_standby(*, standby: bool) -> Finding:
    """A standby takes no writes."""
    if standby:
        return fail("primary", "this server is a standby and takes no writes", "name the primary in DATABASE_URL")
    return ok("primary", "the server takes writes")


def judge_pooler(promised_pid: int, real_pid: int) -> Finding:
    """A pooler answers for the server, and invents the process id with which a session begins."""
    if promised_pid == real_pid:
        return ok("pooler", "none between this machine and the server that shows itself")
    return ok(
        "pooler",
        "there is one, and its mode cannot be seen from here: transaction and session pooling work, statement pooling "
        "does not; every relay keeps a server connection of it while a batch waits for the broker",
    )


def judge_clock(ahead: float, uncertainty: float) -> Finding:
    """The database's clock decides when events are due; this machine's stamps logs and signs for the broker."""
    off = abs(ahead)
    if off <= CLOCK_SECONDS + uncertainty:
        return ok("clock", "the database's is this machine's, give or take a second")
    which = "ahead of" if ahead > 0 else "behind"
    return warn(
        "clock",
        f"the database's is {span(off)} {which} this machine's",
        "have both follow NTP: logs mislead, and Google refuses signatures that are minutes off",
    )


def judge_connections(most: int, used: int, of_role: int, used_by_role: int) -> Finding:
    """Relays that cannot connect publish nothing."""
    left = most - used
    found = f"{used} of {most} are in use"
    if of_role >= 0:
        left = min(left, of_role - used_by_role)
        found += f", {used_by_role} of the {of_role} that this role may have"
    if left < FEW_CONNECTIONS:
        return warn(
            "connections",
            f"{found}: {max(0, left)} left",
            "raise max_connections or the role's limit, or put a pooler in front of the services",
        )
    return ok("connections", found)


def judge_timeouts(limits: dict[str, int], budget_ms: int, batch_ms: int) -> Sequence[Finding]:
    """Settings of the role or the database that end what the relay does in order.

    It sets statement_timeout and idle_in_transaction_session_timeout itself, for each of its transactions.
    """
    findings = []
    transaction, idle = limits.get("transaction_timeout", 0), limits.get("idle_session_timeout", 0)
    if 0 < transaction <= budget_ms:
        findings.append(
            fail(
                "timeouts",
                f"transaction_timeout is {transaction} ms, within the publish budget of {budget_ms} ms: the database "
                "ends batches that the broker has taken, and they are published again for ever",
                "alter role ... set transaction_timeout = 0, or lower RELAY_PUBLISH_BUDGET_MS well below it",
            )
        )
    elif 0 < transaction <= batch_ms:
        findings.append(
            warn(
                "timeouts",
                f"transaction_timeout is {transaction} ms, below RELAY_IDLE_TX_MS of {batch_ms} ms: "
                "a slow batch may be published twice",
                "alter role ... set transaction_timeout = 0, or raise it",
            )
        )
    if 0 < idle < SHORT_IDLE_MS:
        findings.append(
            warn(
                "timeouts",
                f"idle_session_timeout is {idle} ms: an idle relay is disconnected again and again",
                "alter role ... set idle_session_timeout = 0",
            )
        )
    return findings or (ok("timeouts", "none of this role's ends a batch; the relay sets its own"),)


def judge_holder(kind: str, name: str, seconds: float | None, xids: int | None, *, active: bool) -> Finding | None:
    """One that keeps old row versions alive, if it does so for too long."""
    if kind == "replication slot":
        if not active:
            return warn(
                "old snapshots",
                f"replication slot {name} is not in use and keeps WAL, perhaps rows too",
                f"select pg_drop_replication_slot('{name}') if nobody comes back for it",
            )
        if (xids or 0) > MANY_XIDS:
            return warn(
                "old snapshots",
                f"replication slot {name} is {xids:,} transactions behind",
                "see what holds up its subscriber",
            )
    elif (seconds or 0) > OLD_SECONDS:
        remedy = (
            f"rollback prepared '{name}'" if kind == "prepared transaction" else "end it: pg_terminate_backend(pid)"
        )
        return warn(
            "old snapshots",
            f"{kind} {name} is open for {span(seconds or 0)}: claims slow down, and no vacuum clears the table",
            f"{remedy}, if it is forgotten",
        )
    return None


def judge_horizon(holders: list[Finding], unseen: int) -> Sequence[Finding]:
    """The worst few; or that there are none, as far as this role can see."""
    if holders:
        return holders[:MOST_NAMED]
    found = f"no transaction is open for more than {span(OLD_SECONDS)}"
    if unseen:
        found += f", as far as this role sees: {unseen} sessions are others' (grant pg_read_all_stats to see them)"
    return (ok("old snapshots", found),)
