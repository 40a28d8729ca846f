"""A pooler between the relay and its database is found out, and nothing is prepared behind it."""

import asyncio
import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relay.kernel.runner import Budget
from relay.outbox.outbox import Outbox
from relay.postgres.connect import connect_async
from relay.publisher.publisher import Publisher
from tests.support.bench import Bench
from tests.support.brokers import BrokerInHand
from tests.support.policies import policy
from tests.support.proxy import CHUNK, Proxy, _Connection

# BackendKeyData: the process that a client may ask to cancel, and the secret that it says for it.
_KEY = re.compile(rb"K\x00\x00\x00\x0c....(....)", re.DOTALL)
_NOBODY = b"K\x00\x00\x00\x0c\x00\x00\x00\x07"


class Pooler(Proxy):
    """Gives its clients a process to cancel that is none of the server's, as poolers do."""

    def _to_client(self, connection: _Connection) -> None:
        while data := connection.server.recv(CHUNK):
            connection.client.sendall(_KEY.sub(_NOBODY + rb"\1", data))


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    """The database, through a pooler."""
    parts = conninfo_to_dict(database)
    pooler = Pooler(str(parts["host"]), int(str(parts["port"])))
    yield make_conninfo(database, host="127.0.0.1", port=pooler.port)
    pooler.refuse()


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
