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

SERVICE, RELAY = "shop", "outbox_relay"
PASSWORD = "only-in-this-test"  # noqa: S105 -- of a role that lasts as long as its test


def grants() -> list[str]:
    """The SQL of the section on roles."""
    text = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    section = text.partition("\n## Roles of the database\n")[2].partition("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def granted(database: str) -> Iterator[str]:
    """A database with an outbox, and the two roles with the documented grants and nothing else."""
    roles = [sql.Identifier(role) for role in (SERVICE, RELAY)]
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
    """One for the services, one for the relay."""
    for_service, for_relay = grants()
    assert f"to {SERVICE};" in for_service
    assert f"to {RELAY};" in for_relay


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
