"""The grants of docs/deploy.md: run as they stand there, they are enough, and they are not too much."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import emit, emit_async
from tests.support.commands import ROOT, Commands
from tests.support.outbox import FAILED, PUBLISHED, count, event
from tests.support.pubsub import Channel

SERVICE, RELAY, OPERATOR = "shop", "outbox_relay", "outbox_operator"
PASSWORD = "only-in-this-test"  # noqa: S105 -- of a role that lasts as long as its test


def grants() -> list[str]:
    """The SQL of the section on roles."""
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    section = text.partition("\n## Roles of the database\n")[2].partition("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def granted(database: str) -> Iterator[str]:
    """A database with an outbox, and the three roles with the documented grants and nothing else."""
    roles = [sql.Identifier(role) for role in (SERVICE, RELAY, OPERATOR)]
    with psycopg.connect(database, autocommit=True) as owner:
        # What some servers still grant to everyone must not be what makes these tests pass.
        owner.execute("revoke all on schema public from public")
        for role in roles:
            owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            for snippet in grants():
                owner.execute(snippet.encode())
            yield database
        finally:
            for role in roles:
                owner.execute(sql.SQL("drop owned by {}").format(role))
                owner.execute(sql.SQL("drop role {}").format(role))


def as_role(database: str, role: str) -> str:
    """The same database, as this role."""
    return make_conninfo(database, user=role, password=PASSWORD)


def refused(connection: psycopg.Connection[Any], statement: str) -> bool:
    """Whether the role may not do this."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode())
    except pg.InsufficientPrivilege:
        return True
    return False


def test_each_role_has_its_snippet() -> None:
    """One for the services, one for the relay, one for operators."""
    for_service, for_relay, for_operator = grants()
    assert f"to {SERVICE};" in for_service
    assert f"to {RELAY};" in for_relay
    assert f"to {OPERATOR};" in for_operator


async def test_a_service_emits_whatever_an_event_may_carry(granted: str) -> None:
    """Ordered, scheduled, and twice with one dedup_key, in the same transaction and in another."""
    with psycopg.connect(as_role(granted, SERVICE)) as connection:
        first, again = emit(connection, [event(1, dedup_key="k"), event(1, dedup_key="k")])
        emit(connection, event(2, ordering_key="o"))
        emit(connection, event(3, available_at="2030-01-01T00:00:00Z"))
    async with await psycopg.AsyncConnection.connect(as_role(granted, SERVICE)) as connection_async:
        later = await emit_async(connection_async, event(1, dedup_key="k"))

    assert (first.inserted, again.inserted, later.inserted) == (True, False, False)
    assert later.event_id == first.event_id
    assert count(granted) == 3


def test_the_relay_publishes_and_audits(granted: str, relay: Commands, channel: Channel) -> None:
    """Rows that fail are part of its work; the audit needs nothing more."""
    with psycopg.connect(granted) as owner:
        emit(owner, event())
        # Past outbox_emit: no broker takes an attribute without a name.
        owner.execute("""update outbox_events set attributes = '{"": "x"}'""")
        emit(owner, event())
        emit(owner, event(available_at="2020-01-01T00:00:00Z"))
    settings = {"DATABASE_URL": as_role(granted, RELAY)}

    ticked = relay("tick", **settings)
    audited = relay("audit", "--subscription", channel.subscription, "--quiet", "200ms", "--json", **settings)

    assert ticked.returncode == 0, ticked.stderr
    assert (count(granted, PUBLISHED), count(granted, FAILED)) == (2, 1)
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["expected"] == 2


def test_an_operator_looks_and_acts(granted: str, relay: Commands) -> None:
    """The record is in the operator's hands to write, and not to change."""
    with psycopg.connect(granted) as owner:
        emit(owner, [event(1), event(2), event(3)])
        owner.execute(
            """update outbox_events set failed_at = now(), failure_reason = 'max_attempts'
                where aggregate_id <> '3'"""
        )
        owner.execute("update outbox_events set ordering_key = 'k' where aggregate_id = '1'")
    settings = {"DATABASE_URL": as_role(granted, OPERATOR)}

    listed = relay("failed", "list", "--json", **settings)
    first, second = (row["id"] for row in json.loads(listed.stdout)["rows"])
    retried = relay("failed", "retry", str(first), "--by", "ana", **settings)
    discarded = relay("failed", "discard", str(second), "--reason", "a test order", "--by", "ana", **settings)
    shown = relay("failed", "show", str(first), "--json", **settings)
    status = relay("status", "--json", **settings)
    checked = relay("check", **settings)

    for done in (listed, retried, discarded, shown, status, checked):
        assert done.returncode == 0, done.stderr
    assert retried.stdout.splitlines()[0] == "1 row(s) retried"
    assert "out of order" in retried.stdout
    assert json.loads(shown.stdout)["history"][0]["acted_by"] == "ana"
    assert json.loads(shown.stdout)["payload"]["data"]["number"] == 1
    assert json.loads(status.stdout)["last_action"]["why"] == "a test order"
    assert (count(granted, FAILED), count(granted, "failed_at is null")) == (1, 2)
    with psycopg.connect(as_role(granted, OPERATOR)) as operator:
        for statement in (
            "update outbox_actions set acted_by = 'nobody'",
            "delete from outbox_actions",
            "update outbox_events set payload = '{}'",
            "update outbox_events set published_at = now(), message_id = 'm'",
            "delete from outbox_events",
        ):
            assert refused(operator, statement), statement


def test_the_relay_sees_the_queue(granted: str, relay: Commands) -> None:
    """On its own dyno, without a right more than it had; it may not act."""
    with psycopg.connect(granted) as owner:
        emit(owner, event())
        owner.execute("update outbox_events set failed_at = now(), failure_reason = 'max_attempts'")
    settings = {"DATABASE_URL": as_role(granted, RELAY)}

    status, checked = relay("status", **settings), relay("check", **settings)

    assert status.returncode == 0, status.stderr
    assert "this role may not read outbox_actions" in status.stdout
    assert (checked.returncode, checked.stdout) == (
        1,
        "1 row(s) have failed, the limit is 0; look at them with: python -m relay failed list\n",
    )
    assert relay("failed", "retry", "--all", **settings).returncode == 1
    assert count(granted, FAILED) == 1


def test_neither_role_has_more_than_it_needs(granted: str) -> None:
    """A service reads nobody's data and marks nothing; a relay writes no event and deletes none."""
    with psycopg.connect(as_role(granted, SERVICE)) as service, psycopg.connect(as_role(granted, RELAY)) as relay:
        for statement in (
            "select payload from outbox_events",
            "update outbox_events set published_at = now(), message_id = 'm'",
            "delete from outbox_events",
            "select version from outbox_migrations",
        ):
            assert refused(service, statement), statement
        for statement in (
            "insert into outbox_events default values",
            "update outbox_events set payload = '{}'",
            "delete from outbox_events",
            "delete from outbox_migrations",
        ):
            assert refused(relay, statement), statement


def test_an_operator_corrects_a_wrong_topic_as_operate_md_says(granted: str) -> None:
    """With the grant that stands there, of the rows that wait, and of no other."""
    text = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
    section = text.partition("\n## Pending rows with a wrong topic\n")[2].partition("\n## ")[0]
    correction, grant = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    with psycopg.connect(granted, autocommit=True) as owner:
        with owner.transaction():
            emit(owner, [event(topic="ordres"), event(topic="refunds")])
        with psycopg.connect(as_role(granted, OPERATOR), autocommit=True) as operator:
            assert refused(operator, correction)
            owner.execute(grant.encode())
            operator.execute(correction.encode())
        assert owner.execute("select topic from outbox_events order by id").fetchall() == [("orders",), ("refunds",)]


def test_an_operator_mends_a_failed_row_as_operate_md_says(granted: str) -> None:
    """Its attributes or its topic, with the grant that is named there."""
    text = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
    section = text.partition("\n### What a row failed of for good\n")[2].partition("\n## ")[0]
    (grant,) = re.findall(r"`(grant update [^`]+)`", section)
    (mending,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    with psycopg.connect(granted, autocommit=True) as owner:
        with owner.transaction():
            emitted = emit(owner, event(topic="ordres", attributes={"kept": "k"}))
        owner.execute(
            """update outbox_events set attributes = attributes || '{"goog-trace": "t"}',
                      failed_at = now(), failure_reason = 'non_retryable'"""
        )
        owner.execute(f"{grant} to {OPERATOR}".encode())
        with psycopg.connect(as_role(granted, OPERATOR), autocommit=True) as operator:
            operator.execute(mending.replace("4711", str(emitted.sequence)).encode())
        assert owner.execute("select topic, attributes from outbox_events").fetchall() == [("orders", {"kept": "k"})]
