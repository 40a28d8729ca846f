"""A pooler between the relay and its database is found out, and nothing is prepared behind it."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from relay.kernel.runner import Budget
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.publisher import Publisher
from tests.support.bench import Bench
from tests.support.brokers import BrokerInHand
from tests.support.policies import policy
from tests.support.pooler import pooled_url


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    """The database, through a pooler."""
    with pooled_url(database) as url:
        yield url


async def test_statements_are_prepared_on_a_session_of_ones_own(database: str) -> None:
    """The process that the session is, is the one that it was said to be."""
    async with await connect_async(database) as connection:
        assert connection.prepare_threshold == 0


async def test_behind_a_pooler_nothing_is_prepared(bench: Bench, pooled: str) -> None:
    """And everything is published all the same."""
    bench.emit(*range(20))
    prepared: list[object] = []

    async def connect() -> psycopg.AsyncConnection[object]:
        connection = await connect_async(pooled)
        connections.append(connection)
        return connection

    connections: list[psycopg.AsyncConnection[object]] = []
    publisher = Publisher(Outbox(connect, "public", 20_000), BrokerInHand(), policy(), lambda _: None)
    loop = asyncio.get_running_loop()
    report = await publisher.run_once(Budget(loop.time() + 30, loop.time, asyncio.Event()))
    for connection in connections:
        prepared += await (await connection.execute("select name from pg_prepared_statements")).fetchall()
    await publisher.close()
    assert (report.updated, prepared) == (20, [])
