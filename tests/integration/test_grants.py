"""The rights of docs/deploy.md: the SQL as it stands there is enough for each role, and it is not too much."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay import emit, emit_async
from relay.errors import MigrationError
from relay.outbox import grants, schema
from relay.outbox.grants import Grantee, Role
from tests.support.commands import ROOT, Commands, terminate
from tests.support.outbox import FAILED, PUBLISHED, count, event
from tests.support.pubsub import Channel
from tests.support.waiting import until

SERVICE, RELAY, VIEWER = "shop", "outbox_relay", "outbox_viewer"
PASSWORD = "only-in-this-test"  # noqa: S105 -- of a role that lasts as long as its test


def documented() -> str:
    """The SQL of the section on roles."""
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    section = text.partition("\n## Roles of the database\n")[2].partition("\n## ")[0]
    (found,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return str(found)


@pytest.fixture
def granted(database: str) -> Iterator[str]:
    """A database with an outbox, and the three roles with the documented grants and nothing else."""
    roles = [sql.Identifier(role) for role in (SERVICE, RELAY, VIEWER)]
    with psycopg.connect(database, autocommit=True) as owner:
        # What servers grant to everyone must not be what makes these tests pass.
        owner.execute("revoke all on schema public from public")
        owner.execute("revoke all on all functions in schema public from public")
        for role in roles:
            owner.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
        try:
            owner.execute(documented().encode())
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


def test_the_page_shows_what_the_command_prints(relay: Commands) -> None:
    """Whoever copies the one has done the other."""
    done = relay("grants", "--emitter", SERVICE, "--relay", RELAY, "--viewer", VIEWER)
    assert (done.returncode, done.stdout) == (0, documented())


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


def test_the_relay_publishes_and_is_woken(granted: str, relay: Commands, channel: Channel) -> None:
    """From its start on, which changes nothing of the schema; rows that fail are part of its work."""
    with psycopg.connect(granted) as owner:
        emit(owner, event())
        # Past outbox_emit: no broker takes an attribute without a name.
        owner.execute("""update outbox_events set attributes = '{"": "x"}'""")
        emit(owner, [event(), event(ordering_key="k"), event(available_at="2020-01-01T00:00:00Z")])
    settings = {"DATABASE_URL": as_role(granted, RELAY)}

    ticked = relay("tick", **settings)
    with relay.background("run", **settings) as process:
        with psycopg.connect(as_role(granted, SERVICE)) as service:
            emit(service, event())
        until(lambda: count(granted, PUBLISHED) == 4, "the relay publishes")
        code, log = terminate(process)
    doctor = relay("doctor", **settings)

    assert ticked.returncode == 0, ticked.stderr
    assert (code, count(granted, FAILED)) == (0, 1), log
    assert channel.topic in doctor.stdout
    assert doctor.returncode == 0, doctor.stdout


def test_an_operator_acts_as_the_relays_role(granted: str, relay: Commands) -> None:
    """The record is in the operator's hands to write, and not to change, nor to say when and as which role."""
    with psycopg.connect(granted) as owner:
        emit(owner, [event(1), event(2), event(3)])
        owner.execute(
            """update outbox_events set failed_at = now(), failure_reason = 'max_attempts'
                where aggregate_id <> '3'"""
        )
        owner.execute("update outbox_events set ordering_key = 'k' where aggregate_id = '1'")
    settings = {"DATABASE_URL": as_role(granted, RELAY)}

    listed = relay("failed", "list", "--since", "1h", "--json", **settings)
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
    (entry,) = json.loads(shown.stdout)["history"]
    assert (entry["acted_by"], entry["acted_as"]) == ("ana", RELAY)
    assert json.loads(shown.stdout)["payload"]["data"]["number"] == 1
    assert json.loads(status.stdout)["last_action"]["why"] == "a test order"
    assert (count(granted, FAILED), count(granted, "failed_at is null")) == (1, 2)
    with psycopg.connect(as_role(granted, RELAY)) as operator:
        for statement in (
            "update outbox_actions set acted_by = 'nobody'",
            "delete from outbox_actions",
            """insert into outbox_actions (action_id, action, acted_by, acted_as, row_id, event_id, event_type,
                                           attempt_count)
               values (gen_random_uuid(), 'remove', 'ana', 'postgres', 1, gen_random_uuid(), 'a', 0)""",
        ):
            assert refused(operator, statement), statement


def test_the_relays_role_empties_and_removes_events(granted: str) -> None:
    """What forgetting takes: the record of it, what a row carries, and the row itself."""
    with psycopg.connect(granted) as owner:
        emit(owner, [event(1, dedup_key="d", attributes={"tenant": "acme"}), event(2)])
        owner.execute("update outbox_events set published_at = now(), message_id = 'm'")
    with psycopg.connect(as_role(granted, RELAY)) as operator:
        operator.execute(
            """insert into outbox_actions (action_id, action, acted_by, why, row_id, event_id, event_type,
                                           attempt_count)
               select gen_random_uuid(), 'redact', 'ana', 'asked for', id, event_id, event_type, attempt_count
                 from outbox_events"""
        )
        operator.execute(
            """update outbox_events
                  set payload = payload || '{"data": null, "actor": null}', attributes = '{}', dedup_key = null,
                      ordering_key = null, aggregate_id = 'redacted', last_error = null
                where aggregate_id = '1'"""
        )
        assert operator.execute("delete from outbox_events where aggregate_id = '2'").rowcount == 1
    assert count(granted, "aggregate_id = 'redacted' and payload -> 'data' = 'null'") == 1


def test_a_viewer_looks_and_does_not_act(granted: str, relay: Commands, channel: Channel) -> None:
    """It sees all there is to see, payloads included."""
    with psycopg.connect(granted) as owner:
        emit(owner, [event(1), event(2)])
    assert relay("tick", DATABASE_URL=as_role(granted, RELAY)).returncode == 0
    with psycopg.connect(granted) as owner:
        emit(owner, event(3))
        owner.execute(
            """update outbox_events set failed_at = now(), failure_reason = 'max_attempts'
                where aggregate_id = '3'"""
        )
    settings = {"DATABASE_URL": as_role(granted, VIEWER)}

    status = relay("status", **settings)
    listed = relay("failed", "list", "--since", "1h", "--json", **settings)
    (row,) = json.loads(listed.stdout)["rows"]
    shown = relay("failed", "show", str(row["id"]), "--json", **settings)
    checked = relay("check", **settings)
    audited = relay("audit", "--subscription", channel.subscription, "--quiet", "200ms", "--json", **settings)
    doctor = relay("doctor", "--json", **settings)

    assert "not shown" not in status.stdout, status.stderr
    assert json.loads(shown.stdout)["payload"]["data"]["number"] == 3
    assert (checked.returncode, checked.stdout) == (
        1,
        "1 row(s) have failed, the limit is 0; look at them with: python -m relay failed list\n",
    )
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["expected"] == 2
    failing = [each["check"] for each in json.loads(doctor.stdout)["findings"] if each["status"] == "fail"]
    assert failing == ["privileges"]
    assert relay("failed", "retry", "--all", **settings).returncode == 1
    assert count(granted, FAILED) == 1


@pytest.mark.parametrize(
    ("role", "statements"),
    [
        (
            SERVICE,
            [
                "select from outbox_events",
                "select version from outbox_migrations",
                "insert into outbox_events default values",
                "update outbox_events set published_at = now(), message_id = 'm'",
                "delete from outbox_events",
                "select outbox_wake()",
            ],
        ),
        (
            RELAY,
            [
                "select outbox_emit('[]')",
                "insert into outbox_events default values",
                "update outbox_events set event_id = gen_random_uuid()",
                "update outbox_events set created_at = now()",
                "truncate outbox_events",
                "delete from outbox_migrations",
                "create table public.mine ()",
            ],
        ),
        (
            VIEWER,
            [
                "select outbox_emit('[]')",
                "select from outbox_events for update",
                "update outbox_events set topic = null",
                "delete from outbox_events",
                "insert into outbox_actions (action) values ('retry')",
            ],
        ),
    ],
)
def test_no_role_has_more_than_it_needs(granted: str, role: str, statements: list[str]) -> None:
    """A service reads nobody's data, a relay invents no event, a viewer changes nothing."""
    with psycopg.connect(as_role(granted, role)) as connection:
        for statement in statements:
            assert refused(connection, statement), statement


@pytest.mark.parametrize(
    ("command", "role", "said"),
    [
        (("tick",), SERVICE, "may not read the outbox in schema 'public': permission denied for "),
        (("run",), SERVICE, "may not read the outbox in schema 'public': permission denied for "),
        (
            ("emit", "a", "--aggregate-type", "a", "--aggregate-id", "1", "--data", "1"),
            VIEWER,
            "may not emit (permission ",
        ),
    ],
)
def test_a_role_of_another_purpose_is_told_what_gives_it_its_rights(
    granted: str, relay: Commands, command: tuple[str, ...], role: str, said: str
) -> None:
    """As a wrong configuration, which no restart mends."""
    done = relay(*command, DATABASE_URL=as_role(granted, role))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "python -m relay grants" in done.stderr


def test_granting_waits_for_a_migration_and_not_for_ever(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why nothing was done."""
    monkeypatch.setattr(grants, "LOCK_TIMEOUT", "50ms")
    with psycopg.connect(granted) as migrating, psycopg.connect(granted) as owner:
        migrating.execute("select pg_advisory_xact_lock(%s, %s)", schema.MIGRATION_LOCK)
        with pytest.raises(MigrationError, match="did not end within 50ms; nothing was changed"):
            grants.apply(owner, "public", [Grantee(Role.VIEWER, VIEWER)])


def test_owners_who_grant_at_once_wait_for_each_other(granted: str) -> None:
    """Postgres itself would end all but one: "tuple concurrently updated"."""

    def grant(_: int) -> None:
        with psycopg.connect(granted) as owner:
            for revoke in (False, True, False):
                grants.apply(owner, "public", [Grantee(Role.VIEWER, VIEWER)], revoke=revoke)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(grant, range(16))) == [None] * 16


def snippets(page: str, section: str) -> list[str]:
    """The SQL of a section."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```sql\n(.*?)```", text.partition(f"{section}\n")[2].partition("\n## ")[0], re.DOTALL)


def test_an_operator_corrects_a_wrong_topic_as_operate_md_says(granted: str) -> None:
    """Of the rows that wait, and of no other."""
    (correction,) = snippets("operate.md", "\n## Pending rows with a wrong topic")
    with psycopg.connect(granted) as owner:
        emit(owner, [event(topic="ordres"), event(topic="refunds")])
    with psycopg.connect(as_role(granted, RELAY), autocommit=True) as operator:
        operator.execute(correction.encode())
        assert operator.execute("select topic from outbox_events order by id").fetchall() == [("orders",), ("refunds",)]


def test_an_operator_mends_a_failed_row_as_operate_md_says(granted: str) -> None:
    """Its attributes or its topic."""
    (mending,) = snippets("operate.md", "\n### What a row failed of for good")
    with psycopg.connect(granted) as owner:
        emitted = emit(owner, event(topic="ordres", attributes={"kept": "k"}))
        owner.execute(
            """update outbox_events set attributes = attributes || '{"goog-trace": "t"}',
                      failed_at = now(), failure_reason = 'non_retryable'"""
        )
    with psycopg.connect(as_role(granted, RELAY), autocommit=True) as operator:
        operator.execute(mending.replace("4711", str(emitted.sequence)).encode())
        assert operator.execute("select topic, attributes from outbox_events").fetchall() == [("orders", {"kept": "k"})]
