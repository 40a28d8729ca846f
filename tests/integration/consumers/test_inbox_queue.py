"""What waits in an inbox, as the statistics have it: counted right, and for no more than a glance."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from consumers.backlog import Queue
from consumers.inbox.session import statement
from consumers.inbox.table import Identity, Table
from idempotency import StoreUnavailableError
from relay.postgres.connect import connect_async
from relay.testing.databases import fresh_database
from tests.support.plans import Prepared, analysed_for_now, prepare, scans_of

FINISHED = 200_000
WAITING = 300
MOST = 100
EMPTY = Queue(due=0, oldest_due_seconds=0.0, processing=0, sent=0, failed=0)
INSERT = """
insert into inbox_deliveries (consumer, event_id, event_type, ordering_key, envelope, state, outcome, token, suspect,
                              available_at)
select %(consumer)s, gen_random_uuid(), %(event_type)s, %(key)s, '{}', %(state)s,
       case when %(state)s in ('done', 'failed') then 'ok' end, gen_random_uuid(), %(suspect)s,
       clock_timestamp() - make_interval(secs => %(age)s)
  from generate_series(1, %(rows)s)
"""
LEASES = """
insert into inbox_leases (delivery_id, consumer, token, expires_at)
select id, consumer, token, clock_timestamp() + interval '1 minute' from inbox_deliveries where state = 'processing'
"""


def insert(connection: psycopg.Connection[Any], **others: Any) -> None:
    """Put in rows of this kind."""
    kind = {"consumer": "billing", "event_type": "order.paid", "key": None, "state": "pending", "suspect": False}
    connection.execute(INSERT, {**kind, "age": 10.0, "rows": 1, **others})


def table_at(url: str, schema: str = "public") -> Table:
    """The inbox of billing in this database."""
    identity = Identity(consumer="billing", owner="test", lease_seconds=60.0)
    return Table(lambda: connect_async(url), schema, identity)


@pytest.fixture
async def table(inbox_database: str) -> AsyncIterator[Table]:
    """The inbox of billing in a database of the test's own."""
    found = table_at(inbox_database)
    yield found
    await found.close()


@pytest.fixture
def connection(inbox_database: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody with psql."""
    with psycopg.connect(inbox_database, autocommit=True) as opened:
        yield opened


async def test_an_empty_inbox_has_nothing_due(table: Table) -> None:
    """And nothing that would be the oldest."""
    assert await table.queue() == EMPTY


async def test_what_is_due_is_counted_whatever_it_waits_for(table: Table, connection: psycopg.Connection[Any]) -> None:
    """Ready, suspect, or with a key: not what is for later, is worked on, is over, or is somebody else's."""
    insert(connection, rows=3)
    insert(connection, rows=2, event_type="order.sent", age=50.0)
    insert(connection, rows=4, key="k", age=20.0)
    insert(connection, suspect=True)
    insert(connection, suspect=True, key="k")
    insert(connection, rows=5, age=-3600.0)
    insert(connection, rows=5, age=-3600.0, key="later")
    insert(connection, age=-3600.0, suspect=True)
    insert(connection, rows=6, state="processing", age=900.0)
    insert(connection, state="processing", key="p", age=900.0)
    insert(connection, rows=7, state="sent", age=900.0)
    insert(connection, rows=8, state="failed", age=900.0)
    insert(connection, rows=9, state="done", age=900.0)
    insert(connection, rows=10, consumer="shipping", age=900.0)
    connection.execute(LEASES)

    found = await table.queue()

    assert 50.0 <= found.oldest_due_seconds < 60.0
    assert replace(found, oldest_due_seconds=0.0) == replace(EMPTY, due=11, processing=7, sent=7, failed=8)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ({}, "due"),
        ({"key": "k"}, "due"),
        ({"suspect": True}, "due"),
        ({"state": "sent"}, "sent"),
        ({"state": "failed"}, "failed"),
        ({"state": "processing"}, "processing"),
    ],
    ids=str,
)
async def test_nothing_is_counted_to_the_end(
    table: Table, connection: psycopg.Connection[Any], kind: dict[str, Any], name: str
) -> None:
    """From the limit on the count is the least that there is, and says so."""
    insert(connection, rows=MOST, **kind)
    connection.execute(LEASES)
    exact = await table.queue(MOST)
    assert (getattr(exact, name), exact.at_least) == (MOST, ())

    insert(connection, **kind)
    connection.execute("truncate inbox_leases")
    connection.execute(LEASES)
    more = await table.queue(MOST)
    assert (getattr(more, name), more.at_least) == (MOST, (name,))


async def test_many_types_together_come_to_the_limit(table: Table, connection: psycopg.Connection[Any]) -> None:
    """As one type does."""
    for number in range(MOST // 10 + 1):
        insert(connection, rows=10, event_type=f"t{number}")

    found = await table.queue(MOST)

    assert (found.due, found.at_least) == (MOST, ("due",))


async def test_what_is_for_later_may_hide_what_is_due_among_keys(
    table: Table, connection: psycopg.Connection[Any]
) -> None:
    """So many keyed rows are looked at and no more: the count says that it is the least."""
    insert(connection, rows=MOST + 1, key="a", age=-3600.0)
    insert(connection, rows=5, key="b")

    found = await table.queue(MOST)

    assert (found.due, found.at_least) == (0, ("due",))


async def test_a_database_that_is_away_is_no_empty_queue() -> None:
    """Whoever asks is told."""
    table = table_at("postgresql://nobody@127.0.0.1:1/nowhere")
    with pytest.raises(StoreUnavailableError):
        await table.queue()
    await table.close()


async def test_a_table_that_is_closed_connects_no_more(table: Table) -> None:
    """Whoever looks at that moment leaves no connection behind."""
    await table.queue()
    await table.close()
    with pytest.raises(StoreUnavailableError):
        await table.queue()


@pytest.fixture(scope="module")
def large(outbox_postgres_url: str, inbox_template: str) -> Iterator[str]:
    """An inbox in which much was done and a little waits, of every kind."""
    with fresh_database(outbox_postgres_url, inbox_template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table inbox_deliveries set (autovacuum_enabled = false)")
            insert(connection, rows=FINISHED, state="done")
            insert(connection, rows=WAITING)
            insert(connection, rows=WAITING, key="k")
            insert(connection, rows=WAITING, event_type="later", age=-3600.0)
            for state in ("processing", "sent", "failed"):
                insert(connection, rows=WAITING, state=state)
            insert(connection, suspect=True)
            connection.execute(LEASES)
        yield url


@pytest.mark.slow("fills a large inbox")
@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
def test_a_look_reads_what_it_counts_and_nothing_else(large: str, analysed: bool, plan: str) -> None:  # noqa: FBT001
    """By the index of each, however many deliveries are over, and whatever the statistics say."""
    with analysed_for_now(large), psycopg.connect(large) as connection:
        if analysed:
            connection.execute("analyze inbox_deliveries")
        connection.execute(f"set local plan_cache_mode = {plan}".encode())
        prepared = prepare(connection, "queue", statement)
        scans = _scans(connection, prepared, 10_000)
        connection.rollback()

    assert {scan["Relation Name"] for scan in scans} == {"inbox_deliveries", "inbox_leases"}
    assert {scan["Index Name"] for scan in scans if scan["Relation Name"] == "inbox_deliveries"} == {
        "inbox_deliveries_ready",
        "inbox_deliveries_suspect",
        "inbox_deliveries_keyed",
        "inbox_deliveries_sent",
        "inbox_deliveries_failed",
    }
    assert all(scan["Actual Rows"] * scan["Actual Loops"] <= 2 * WAITING + 1 for scan in scans)
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in scans) <= WAITING


@pytest.mark.slow("fills a large inbox")
def test_a_look_at_a_long_queue_ends_where_it_may(large: str) -> None:
    """Of thousands it reads as many as it is asked for."""
    with analysed_for_now(large), psycopg.connect(large) as connection:
        for kind in ({}, {"key": "k"}, {"state": "sent"}, {"state": "failed"}, {"suspect": True}):
            insert(connection, rows=4_000, **kind)
        connection.execute("analyze inbox_deliveries")
        prepared = prepare(connection, "queue", statement)
        scans = _scans(connection, prepared, MOST)
        connection.rollback()

    assert max(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) <= MOST + 1
    assert sum(scan.get("Rows Removed by Filter", 0) for scan in scans) <= MOST


def _scans(connection: psycopg.Connection[Any], prepared: Prepared, most: int) -> list[dict[str, Any]]:
    values = {"consumer": "billing", "skew": 0.0, "most": most}
    return [scan for scan in scans_of(connection, prepared, values) if scan["Actual Loops"]]
