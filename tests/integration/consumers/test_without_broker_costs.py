"""What it costs to move events from an outbox into the inbox: figures that do not depend on how fast the machine is."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import Trace

from consumers.inbox.moving import moving_statement
from consumers.inbox.session import statement
from consumers.sources.outbox import OutboxFeed
from relay.outbox.rows import MOVED
from relay.outbox.statements import statement as of_outbox
from relay.postgres.connect import connect_async
from relay.postgres.statements import numbers, texts
from relay.postgres.wire import prepared
from relay.testing.databases import fresh_database
from tests.support.inbox import rows
from tests.support.plans import analysed_for_now, nodes
from tests.support.without_broker import asked, emitted, feeding

# One line a message: F from the consumer, B from the server.
_MESSAGE = re.compile(r"^([FB])\t\d+\t(\w+)", re.MULTILINE)
# Begin, hold, glance, claim; the move, commit.
BATCH = 6
# The first batch of a connection makes the session fit, and prepares what it says.
FIRST = 5
ROWS = 20_000


async def cost(url: str, log: Path, *, pooled: bool = False) -> tuple[int, int, int]:
    """Move what one claim takes; the events, the statements, and the points at which it waited for the server."""
    with log.open("w") as file:

        async def connect() -> psycopg.AsyncConnection[Any]:
            connection = await connect_async(url)
            if pooled:
                connection.prepare_threshold = None
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS | Trace.REGRESS_MODE)
            return connection

        moving = moving_statement("public")
        feed = OutboxFeed(connect, "public", moving, consumer="billing", observe=lambda _: None)
        done = await feed.move()
        await feed.close()
    told = Counter(_MESSAGE.findall(log.read_text()))  # noqa: ASYNC240 -- nothing else runs by now
    return done.events, told["B", "CommandComplete"], told["B", "ReadyForQuery"]


@pytest.mark.parametrize("events", [1, 1_000])
async def test_a_batch_costs_six_statements_whatever_its_size(inbox_database: str, tmp_path: Path, events: int) -> None:
    """Two round trips, none per event, however many subscribe."""
    asked(inbox_database, "insert into inbox_subscribers values ('billing', '{*}'), ('shipping', '{order.*}')")
    emitted(inbox_database, *range(events))
    assert await cost(inbox_database, tmp_path / "trace") == (events, BATCH + FIRST, 2 + 2)
    assert len(rows(inbox_database)) == 2 * events


async def test_behind_a_pooler_it_costs_one_statement_more(inbox_database: str, tmp_path: Path) -> None:
    """Each transaction makes the session fit for itself, and prepares nothing."""
    asked(inbox_database, "insert into inbox_subscribers values ('billing', '{*}')")
    emitted(inbox_database, *range(10))
    assert await cost(inbox_database, tmp_path / "trace", pooled=True) == (10, BATCH + 1, 2)


async def test_what_events_carry_does_not_leave_the_database(inbox_database: str) -> None:
    """Whichever way they wait: a key, a schedule and a size change nothing about it."""
    large = {"data": {"text": "x" * 10_000}, "attributes": {"note": "y" * 1_000}}
    emitted(inbox_database, *range(10))
    emitted(inbox_database, *range(100), **large)
    emitted(inbox_database, *range(100), ordering_key="key", **large)
    asked(inbox_database, "update outbox_events set available_at = now() where ordering_key is null and id % 2 = 0")
    async with feeding(inbox_database) as feed:
        claimed = await _claimed(feed)
        assert [row.body or row.attributes for row in claimed] == [None] * 210
        assert (await feed.move()).events == 210
    assert {each["attributes"].get("note", "")[:1] for each in rows(inbox_database)} == {"", "y"}


async def _claimed(feed: OutboxFeed) -> list[Any]:
    async with feed._outbox.batch() as batch:
        return (await batch.claim(1_000, 4_000_000)).rows


@pytest.fixture(scope="module")
def filled(inbox_template: str, outbox_postgres_url: str) -> Iterator[str]:
    """Many events that are published and stored, and as many that are not; never analysed."""
    with fresh_database(outbox_postgres_url, inbox_template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("outbox_events", "inbox_deliveries", "inbox_history"):
                connection.execute(
                    sql.SQL("alter table {} set (autovacuum_enabled = false)").format(sql.Identifier(table))
                )
            connection.execute(
                "insert into inbox_subscribers "
                "select 'consumer-' || n, array['order.*', 'x'] from generate_series(1, 3) as n"
            )
            connection.execute(
                """
                insert into outbox_events (event_id, event_type, aggregate_type, aggregate_id, payload, published_at,
                                           message_id)
                select id, 'order.paid', 'order', n::text,
                       jsonb_build_object('event_id', id, 'event_type', 'order.paid', 'version', 1,
                                          'occurred_at', now(), 'actor', null, 'data', n),
                       case when n %% 2 = 0 then now() end, case when n %% 2 = 0 then 'inbox' end
                  from generate_series(1, %s) as n, lateral (select md5(n::text)::uuid as id) as identity
                """,
                [ROWS],
            )
            connection.execute(
                "insert into inbox_deliveries (consumer, event_id, event_type, envelope) "
                "select consumer, event_id, event_type, payload from outbox_events, inbox_subscribers "
                "where published_at is not null"
            )
        yield url


@pytest.mark.parametrize("analysed", [False, True])
def test_moving_looks_up_what_it_moves(filled: str, *, analysed: bool) -> None:
    """By ids alone, each once; the inbox is not read at all, and what was published is not come by."""
    with analysed_for_now(filled), psycopg.connect(filled) as connection:
        if analysed:
            connection.execute("analyze")
        values = {"search_path": '"public"', "idle_tx_ms": "20000", "local": True}
        connection.execute(of_outbox("enter"), values)
        ids = [
            row[0] for row in connection.execute("select id from outbox_events where published_at is null limit 500")
        ]
        moving = {
            "consumer": "consumer-1",
            "moved": MOVED,
            "ids": numbers(ids),
            "shards": numbers([0] * len(ids)),
            "types": texts(["order.paid"]),
            "expected": len(ids),
        }
        found = _scans(connection, moving_statement("public"), moving)
        stored = connection.execute("select count(*) from inbox_deliveries").fetchone()
        connection.rollback()
    assert stored == (ROWS // 2 * 3 + len(ids) * 3,)
    events = [node for node in found if node["Relation Name"] == "outbox_events"]
    assert [(node["Index Name"], node["Actual Loops"], node["Actual Rows"]) for node in events] == [
        ("outbox_events_pkey", len(ids), 1)
    ]
    assert {node["Relation Name"] for node in found} == {"outbox_events", "inbox_subscribers"}


def test_listing_subscribers_counts_no_further_than_it_says(filled: str) -> None:
    """By the indexes of what waits, and up to a bound for each."""
    with psycopg.connect(filled) as connection:
        values = {"search_path": '"public"', "statement_ms": "10000", "local": True}
        connection.execute(statement("enter"), values)
        found = _scans(connection, statement("subscribers"), {"most": 100})
    deliveries = [node for node in found if node["Relation Name"] == "inbox_deliveries"]
    assert {node["Index Name"] for node in deliveries} == {"inbox_deliveries_ready", "inbox_deliveries_keyed"}
    assert {node["Actual Rows"] for node in deliveries} == {100, 0}


def _scans(connection: psycopg.Connection[Any], text: bytes, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement prepared, as it is at work; the nodes of its plan that look at any table."""
    made = prepared(lambda _: text, "looked_at")
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(made.text.encode())
    listed = ", ".join(["%s"] * len(made.parameters))
    cursor.execute(
        f"explain (analyze, format json, timing off) execute looked_at ({listed})".encode(),
        [values[name] for name in made.parameters],
    )
    row = cursor.fetchone()
    assert row
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return [node for node in nodes(plan[0]["Plan"]) if node["Node Type"].endswith("Scan") and "Relation Name" in node]
