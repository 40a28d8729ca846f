"""What a published event may cost: figures that do not depend on how fast the machine is."""

import asyncio
import gc
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import Trace

from relay import emit
from relay.envelope import Message
from relay.kernel.runner import Budget, Report
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.publisher import Publisher
from tests.support.bench import Bench
from tests.support.brokers import BrokerInHand
from tests.support.looking import stop_looking
from tests.support.outbox import event
from tests.support.policies import policy
from tests.support.roles_of_tests import as_relay
from tests.support.sessions import until_alone

# One line a message: F from the relay, B from the server.
_MESSAGE = re.compile(r"^([FB])\t\d+\t(\w+)", re.MULTILINE)
BATCH = 1_000
# The first batch of a connection makes the session fit, and prepares each of the statements of a claim; then that of a
# settle. Each of the two is a message of its own.
CLAIM, SETTLE = 3, 1
FIRST = 1 + CLAIM + SETTLE
FIRST_TRIPS = 2
# Per event of about 300 bytes: its lock, its new version, the entries of that in two indexes. It was 893.
WAL_BYTES = 950
# A row is its columns and the tuple that holds them; its message the attributes beside them. It was 15.2.
BLOCKS_HELD = 17


@dataclass(frozen=True)
class Cost:
    """What a pass asked of the database."""

    statements: int
    # Points at which the relay waits for all that it has asked.
    round_trips: int


async def one_pass(url: str, log: Path, seconds: float = 0.0, *, pooled: bool = False) -> tuple[Report, Cost]:
    """Run a pass of the publisher over a connection whose every message libpq writes down, and count them."""
    with log.open("w") as file:

        async def connect() -> psycopg.AsyncConnection[Any]:
            connection = await connect_async(as_relay(url))
            if pooled:
                connection.prepare_threshold = None
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS | Trace.REGRESS_MODE)
            return connection

        outbox = Outbox(connect, "public", 20_000, monotonic=lambda: 0.0)
        publisher = Publisher(outbox, BrokerInHand(), policy(batch_size=BATCH), lambda _: None)
        loop = asyncio.get_running_loop()
        report = await publisher.run_once(Budget(loop.time() + seconds, loop.time, asyncio.Event()))
        await publisher.close()  # with the connection, libpq writes the last of its buffer
    sent_and_received = Counter(_MESSAGE.findall(log.read_text()))  # noqa: ASYNC240 -- nothing else runs by now
    return report, Cost(
        statements=sent_and_received["B", "CommandComplete"],
        round_trips=sent_and_received["B", "ReadyForQuery"],
    )


@pytest.mark.parametrize("events", [1, 1_000])
async def test_a_batch_costs_six_statements_whatever_its_size(database: str, tmp_path: Path, events: int) -> None:
    """Begin with a glance and the claim; settle with the commit: two round trips, none per row."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(events)])
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.updated == events
    assert cost == Cost(statements=6 + FIRST, round_trips=2 + FIRST_TRIPS)


@pytest.mark.parametrize("keys", [1, 50])
async def test_ordered_rows_cost_two_statements_more(database: str, tmp_path: Path, keys: int) -> None:
    """They are walked, and locked by their ids, whatever the number of keys. Whoever sees the first walks for them."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number, ordering_key=f"key-{number % keys}") for number in range(2_000)])
    report, cost = await one_pass(database, tmp_path / "trace", seconds=60.0)
    assert report.updated == 2_000
    # Two full batches with a look for the floors between them, and a claim that finds nothing.
    prepared, begin, look, walk, lock = 2, 1, 2, 1, 1
    assert cost == Cost(
        statements=2 * (6 + walk + lock) + 5 + walk + FIRST + prepared + look,
        round_trips=2 * (2 + lock) + 2 + FIRST_TRIPS + walk + prepared + begin + look,
    )


async def test_rows_that_are_due_cost_one_statement_more(database: str, tmp_path: Path) -> None:
    """The first batch to see any claims them behind the fresh ones."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(10)])
        connection.execute("update outbox_events set available_at = now() where aggregate_id < '5'")
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.updated == 10
    assert cost == Cost(statements=7 + FIRST + 1, round_trips=3 + FIRST_TRIPS + 1)


async def test_a_look_for_the_safe_floors_comes_once_a_second(database: str, tmp_path: Path) -> None:
    """It is a round trip of its own, behind the begin; the batches that follow at once have none."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(3_000)])
    report, cost = await one_pass(database, tmp_path / "trace", seconds=60.0)
    assert report.updated == 3_000
    # Three full batches, with a look between the first and the second; a claim that finds nothing; and one that asks
    # how far the table goes, as none did behind a full one.
    begin, look, claim, settle = 1, 2, 1 + CLAIM, SETTLE + 1
    assert cost == Cost(
        statements=3 * (claim + settle) + 2 * (claim + 1) + FIRST + look,
        round_trips=3 * 2 + 2 * 2 + begin + look + FIRST_TRIPS,
    )


async def test_a_pass_with_nothing_to_do_costs_five_statements(database: str, tmp_path: Path) -> None:
    """Nothing due: the same without the settle."""
    report, cost = await one_pass(database, tmp_path / "trace")
    assert report.processed == 0
    assert cost == Cost(statements=5 + FIRST - SETTLE, round_trips=2 + FIRST_TRIPS - 1)


async def test_behind_a_pooler_a_batch_costs_one_statement_more(database: str, tmp_path: Path) -> None:
    """Each transaction makes the session fit for itself, and prepares nothing."""
    with psycopg.connect(database) as connection:
        emit(connection, [event(number) for number in range(10)])
    report, cost = await one_pass(database, tmp_path / "trace", pooled=True)
    assert report.updated == 10
    assert cost == Cost(statements=7, round_trips=2)


@pytest.mark.parametrize(
    ("keys", "requests"),
    [(0, 3), (10, 30), (300, 300)],
    ids=["no keys: a thousand rows a request", "10 keys: a hundred", "300 keys: all that is there of each"],
)
async def test_a_batch_is_as_few_requests_as_can_be(bench: Bench, keys: int, requests: int) -> None:
    """Pub/Sub takes a thousand messages in one, of one key."""
    with psycopg.connect(bench.url) as connection:
        emit(connection, [event(n, ordering_key=f"key-{n % keys}" if keys else None) for n in range(3_000)])
    report = await bench.run_once(bench.publisher_on(bench.outbox, batch_size=BATCH))
    assert report.updated == 3_000
    assert len(bench.broker.requests) == requests


async def test_an_event_is_written_once(bench: Bench) -> None:
    """One new version of its row, whatever happens on the way, and a bounded number of bytes of WAL."""
    bench.emit(*range(2 * BATCH))
    with psycopg.connect(bench.url, autocommit=True) as connection:
        # Without images of whole pages, whose number depends on when the last checkpoint was.
        connection.execute("alter table outbox_events set (autovacuum_enabled = false)")
        full_page_writes = connection.execute("show full_page_writes").fetchone()
        stop_looking()
        until_alone(connection)  # a session reports what it counted when it ends: that would come after the reset
        connection.execute("select pg_stat_reset()")
        before = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
        assert (await bench.run_once(bench.publisher_on(bench.outbox, batch_size=BATCH))).updated == 2 * BATCH
        assert before
        written = connection.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", before).fetchone()
        await bench.outbox.close()
        until_alone(connection)
    versions = bench.query(
        "select n_tup_upd, n_tup_ins, n_tup_del from pg_stat_user_tables where relname = 'outbox_events'"
    )
    assert versions == [(2 * BATCH, 0, 0)]
    if full_page_writes == ("on",):
        pytest.skip("full_page_writes is on in this server: its WAL holds images of pages, whose number is chance")
    assert written
    assert written[0] / (2 * BATCH) < WAL_BYTES


class _Weighing(BrokerInHand):
    """Counts what Python holds when it is asked: all of a batch is there, as rows and as messages."""

    blocks = 0

    async def publish(self, topic: str, messages: Sequence[Message], seconds: float) -> Sequence[str]:
        self.blocks = sys.getallocatedblocks()
        self.asked.append((topic, round(seconds)))
        return [str(number) for number, _ in enumerate(messages)]


async def test_an_event_costs_python_a_bounded_number_of_objects(bench: Bench) -> None:
    """Nothing is parsed on the way, and nothing is kept afterwards."""
    broker = _Weighing()
    publisher = Publisher(bench.outbox, broker, policy(batch_size=BATCH), lambda _: None)
    budget = Budget(0, bench.monotonic, asyncio.Event())
    held, left = [], []
    for _ in range(3):
        bench.emit(*range(BATCH))
        gc.collect()
        before = sys.getallocatedblocks()
        assert (await publisher.run_once(budget)).updated == BATCH
        gc.collect()
        held.append((broker.blocks - before) / BATCH)
        left.append((sys.getallocatedblocks() - before) / BATCH)
    await publisher.close()
    assert held[-1] < BLOCKS_HELD
    assert left[-1] < 1
