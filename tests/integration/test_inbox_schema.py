"""The inbox's schema in a database: the ways to it, and what a consumer needs of it."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from consumers.inbox.schema import INBOX
from consumers.waiting import enqueue_sync
from relay.errors import ConfigurationError, MigrationError, SchemaError
from relay.outbox.ladder import OUTBOX
from relay.postgres.connect import connect_async
from relay.postgres.ladder import UPKEEP_TABLES
from relay.postgres.schema import Versions
from relay.postgres.script import Script
from tests.support.portrait import portrait, recorded

NEWEST = INBOX.newest()
INBOXES = Versions(INBOX)


@pytest.fixture
def connection(bare_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database without an inbox."""
    with psycopg.connect(bare_database, autocommit=True) as opened:
        yield opened


def test_each_step_back_undoes_its_step_and_nothing_else(connection: psycopg.Connection[Any]) -> None:
    """From every version to the one before it, and up again."""
    portraits = [portrait(connection)]
    for version in range(1, NEWEST + 1):
        INBOXES.migrate(connection, "public", version)
        portraits.append(portrait(connection))
    for version in range(NEWEST, 0, -1):
        INBOXES.migrate(connection, "public", version - 1)
        assert portrait(connection) == portraits[version - 1]
        INBOXES.migrate(connection, "public", version)
        assert portrait(connection) == portraits[version]
        INBOXES.migrate(connection, "public", version - 1)


def test_the_printed_steps_make_what_the_command_makes(connection: psycopg.Connection[Any]) -> None:
    """Every object and every line of the record, by way of every version."""
    INBOXES.migrate(connection, "public")
    migrated = portrait(connection), recorded(connection, INBOX.record)
    INBOXES.migrate(connection, "public", 0)
    for version in range(NEWEST):
        connection.execute(Script(INBOX).between("public", version, version + 1).encode())
    assert (portrait(connection), recorded(connection, INBOX.record)) == migrated
    connection.execute(Script(INBOX).down("public", 0).encode())
    assert portrait(connection) == []


def test_its_functions_look_in_their_own_schema(connection: psycopg.Connection[Any]) -> None:
    """Whoever completes a delivery, or enqueues one, may have any search_path."""
    connection.execute("create schema inboxes")
    INBOXES.migrate(connection, "inboxes")
    token = "3f7b4b7e-0000-4000-8000-000000000000"  # noqa: S105 -- no secret: it names a claim
    (delivery,) = connection.execute(
        "insert into inboxes.inbox_deliveries (consumer, event_id, event_type, envelope, state, token) "
        "values ('billing', gen_random_uuid(), 'order.paid', '{}', 'processing', %s) returning id",
        [token],
    ).fetchone() or (None,)
    said = Jsonb({"id": delivery, "token": token})
    named = Jsonb({"id": delivery, "token": token, "recipients": [["anna", 1], ["ben", 2], ["anna", 1]]})
    for new in (2, 0):
        fanned_out = connection.execute("select inboxes.inbox_fan_out(%s)", [named]).fetchone()
        assert fanned_out == (new,)
    completed = connection.execute("select inboxes.inbox_complete(%s)", [said]).fetchone()
    assert completed == (True,)
    with connection.transaction():
        asked = enqueue_sync(connection, consumer="billing", event_type="order.paid", data=1, key="a", schema="inboxes")
    found = connection.execute(
        "select envelope -> 'data' from inboxes.inbox_deliveries where id = %s", [asked.delivery]
    )
    assert found.fetchone() == (1,)


async def test_a_consumer_needs_no_more_than_the_page_grants(connection: psycopg.Connection[Any]) -> None:
    """It asks for the version and changes nothing; what it lacks is named."""
    INBOXES.migrate(connection, "public")
    role = f"consumer_of_{connection.info.dbname}"
    connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    url = f"{connection.info.dsn} password={connection.info.password} options='-c role={role}'"
    try:
        async with await connect_async(url) as consumer:
            with pytest.raises(ConfigurationError, match=r"may not read the inbox .* select on inbox_migrations, and"):
                await INBOXES.require(consumer, "public")
            connection.execute(
                sql.SQL(
                    "grant select on inbox_migrations to {0}; grant select, insert, update, delete on {1} to {0}"
                ).format(
                    sql.Identifier(role),
                    sql.SQL(", ").join(map(sql.Identifier, sorted(INBOX.tables - {INBOX.record}))),
                )
            )
            assert await INBOXES.require(consumer, "public") == NEWEST
            await consumer.execute(
                "insert into inbox_deliveries (consumer, event_id, event_type, envelope) "
                "values ('billing', gen_random_uuid(), 'order.paid', '{}')"
            )
            await consumer.execute("insert into inbox_history (delivery_id, what) values (1, 'received')")
            await consumer.execute("delete from inbox_deliveries")
    finally:
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(role)))


async def test_a_start_without_an_inbox_is_refused_with_the_command(
    connection: psycopg.Connection[Any], bare_database: str
) -> None:
    """And so is one on what a much later release made."""
    async with await connect_async(bare_database) as consumer:
        with pytest.raises(SchemaError, match="has no inbox in schema 'public'; create it with: python -m consumers"):
            await INBOXES.require(consumer, "public")
        INBOXES.migrate(connection, "public")
        connection.execute("insert into inbox_migrations (version, name) values (999, 'later')")
        with pytest.raises(SchemaError, match=f"at version 999, newer than the {NEWEST} of this code"):
            await INBOXES.require(consumer, "public")


def test_what_uses_a_table_of_it_is_in_the_way_of_the_way_back(connection: psycopg.Connection[Any]) -> None:
    """It is the service's own, and not dropped along with the inbox."""
    INBOXES.migrate(connection, "public")
    connection.execute("create view stuck as select * from inbox_deliveries where suspect")
    before = portrait(connection)
    with pytest.raises(MigrationError, match="something of your own uses it; nothing was changed"):
        INBOXES.migrate(connection, "public", 0)
    assert portrait(connection) == before


def test_an_inbox_comes_beside_an_outbox_of_another_owner(connection: psycopg.Connection[Any]) -> None:
    """Whoever came first owns what both make; the other's way back leaves it alone."""
    owners = [sql.Identifier(f"owner_{number}_{uuid4().hex}") for number in range(2)]
    for owner in owners:
        connection.execute(sql.SQL("create role {}").format(owner))
        connection.execute(sql.SQL("grant all on schema public to {}").format(owner))
    try:
        for owner, ladder in zip(owners, (OUTBOX, INBOX), strict=True):
            connection.execute(sql.SQL("set role {}").format(owner))
            Versions(ladder).migrate(connection, "public")
        Versions(INBOX).migrate(connection, "public", 0)
        owned = "select tableowner from pg_tables where tablename = any(%s)"
        found = connection.execute(owned, (sorted(UPKEEP_TABLES),)).fetchall()
        assert [sql.Identifier(name) for (name,) in found] == owners[:1] * len(UPKEEP_TABLES)
    finally:
        connection.execute("reset role")
        for owner in owners:
            connection.execute(sql.SQL("drop owned by {}").format(owner))
            connection.execute(sql.SQL("drop role {}").format(owner))
